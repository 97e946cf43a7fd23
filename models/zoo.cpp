#include "models/zoo.h"

namespace roundoff {

std::vector<std::string_view> model_names() { return {"mlp", "tiny-mlp", "convnet", "bn-mlp"}; }

std::unique_ptr<Model> make_model(const ModelSettings& settings) {
  const auto refuse = [&](const auto&... what) { throw UsageError(concat("[model] ", what...)); };
  if (settings.classes < 2) refuse("classes is ", settings.classes, "; at least 2 expected");
  if (settings.input.numel() < 1) refuse("a sample of shape ", settings.input, " is empty");
  for (const std::int64_t width : settings.hidden)
    if (width < 1) refuse("a hidden layer of width ", width, "; at least 1 expected");
  if (!(settings.dropout >= 0 && settings.dropout < 1))
    refuse("dropout is ", settings.dropout, "; a probability in [0, 1) expected");
  const bool convnet = settings.model == "convnet";
  if (!convnet && (settings.batch_norm || settings.dropout > 0))
    refuse("batch_norm and dropout are options of convnet, the model is ", settings.model);

  if (settings.model == "mlp") return std::make_unique<Mlp>("mlp", settings);
  if (settings.model == "tiny-mlp") {
    // 576-16-3 on 24x24 images of 3 classes: 9283 parameters.
    ModelSettings tiny = settings;
    tiny.hidden = {16};
    return std::make_unique<Mlp>("tiny-mlp", tiny);
  }
  if (settings.model == "bn-mlp") {
    if (settings.hidden.size() != 1)
      refuse("bn-mlp has one hidden layer, ", settings.hidden.size(), " widths were given");
    return std::make_unique<BnMlp>(settings);
  }
  if (convnet) {
    if (settings.input.rank() != 3 || settings.input[0] < 4 || settings.input[1] < 4)
      refuse("convnet takes images [H, W, C] of at least 4x4, a sample is ", settings.input);
    return std::make_unique<ConvNet>(settings);
  }
  refuse("unknown model '", settings.model, "'; mlp, tiny-mlp, convnet or bn-mlp expected");
  return nullptr;
}

}  // namespace roundoff

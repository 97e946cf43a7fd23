// Reports: what is written, that nothing a person typed escapes its place, and what happens to
// figures that are hard to draw.
#include "study/report.h"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "study/citation.h"
#include "study/figure.h"
#include "study/page.h"
#include "study/process.h"
#include "study/text.h"
#include "tests/engine/io/temporary_folder.h"

using namespace roundoff;
using namespace roundoff::study;
namespace fs = std::filesystem;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kHostile =
    "<script>alert('x')</script> & \"q\" $x_1^2$ %s {b} \\end{table} `id`";

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

bool contains(const std::string& text, const std::string& part) { return count(text, part) > 0; }

Result hostile_result() {
  Result r;
  r.title = kHostile;
  r.question = kHostile;
  r.method = {kHostile};
  r.shows = {kHostile};
  r.does_not_show = {kHostile};
  r.skipped = {kHostile};
  r.claims = {{kHostile, kHostile, true}, {"second", "0.5 > 0.1", false}};
  r.seeds = {1, 7};
  Table table(kHostile, {{kHostile}, {"value", Provenance::measured, 3, kHostile}});
  table.add_row({std::string(kHostile), 0.125});
  table.add_row({std::string("not finite"), kNan});
  table.add_note(kHostile);
  r.tables = {table, table};
  Figure lines{"Odd Name/..", kHostile, kHostile, kHostile};
  lines.log_x = lines.log_y = true;
  lines.series = {{kHostile, {1, 10, 100, 0, -5}, {1e-3, kNan, kInf, 1, 1}},
                  {"b", {1, 10, 100}, {1, 2, 3}, Series::Style::line_and_dots}};
  lines.series[1].low = {0.5, 1.5, kNan};
  lines.series[1].high = {1.5, 2.5, kNan};
  Figure bars{"bars", "Bars of categories.", "", ""};
  bars.categories = {kHostile, "two", ""};
  bars.series = {{"a", {0, 1, 2}, {3, -1, 2}, Series::Style::bars},
                 {"b", {0, 1, 2}, {1, 2, 3}, Series::Style::bars}};
  Figure empty{"empty", "Nothing.", "x", "y"};
  empty.series = {{"none"}, {"not finite", {1}, {kNan}}};
  Figure same = bars;
  r.figures = {lines, bars, empty, same};
  r.references = {{"key{}, x", "article", {{"author", "A & B"}, {"title", "50% {of} } it"}}}};
  return r;
}

ReportContext context() {
  ReportContext c;
  c.program = "roundoff test";
  c.command = "roundoff study x --data 'a b' --out r";
  c.environment =
      "{\"cpu\": \"<b>&\", \"command_line\": [\"roundoff\", \"a b\"], \"data\": [{\"file\": \"f\", "
      "\"sha256\": \"0\"}]}";
  c.config = "quick = true\n";
  c.seconds = 1.25;
  return c;
}

}  // namespace

TEST_CASE("text is escaped for what it goes into") {
  CHECK(html("<a href=\"x\" b='y'>&") == "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;");
  CHECK(clean("a\x01\n\xff\xc3\xa9\xe2\x82") == "a  ?\xc3\xa9??");
  CHECK(clean("\xed\xa0\x80") == "???");  // a surrogate
  CHECK(clean("\xc0\xaf") == "??");       // an overlong slash
  CHECK(tex("50% of a_b & {c} #1 $2 ~ ^ \\x") ==
        "50\\% of a\\_b \\& \\{c\\} \\#1 \\$2 \\textasciitilde{} \\textasciicircum{} "
        "\\textbackslash{}x");
  CHECK(gnuplot_string("it's `ls` \"$x\"\n") == "'it''s `ls` \"$x\" '");
  CHECK(bib("a {B} & 5%") == "a {B} \\& 5\\%");
  CHECK(bib("a } {") == "a  ");
  CHECK(file_name("Loss, all (x/../y) ", "z") == "loss-all-x-y");
  CHECK(file_name("../", "z") == "z");
  CHECK(shell_word("a-b_1.x") == "a-b_1.x");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("") == "''");
}

TEST_CASE("a report holds everything, escaped, in one page that fetches nothing") {
  const testing::TemporaryFolder folder;
  const fs::path out = folder / "r";
  const Listing listing = write_report(out, "x", hostile_result(), context());
  CHECK(listing.held == 1);
  CHECK(listing.claims == 2);
  CHECK(listing.not_held == "second");
  const std::string page = read(out / "index.html");
  CHECK_FALSE(contains(page, "<script"));
  CHECK_FALSE(contains(page, "<b>&\""));
  CHECK(contains(page, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;q&quot;"));
  // Nothing but namespaces looks like an address.
  CHECK(count(page, "http://") == count(page, "=\"http://www.w3.org/"));
  CHECK(count(page, "https://") == 0);
  CHECK_FALSE(contains(page, "src="));
  CHECK_FALSE(contains(page, "@import"));
  CHECK(contains(page, "<meta name=\"viewport\""));
  CHECK(contains(page, "@media print"));
  CHECK(contains(page, "n = 2 seeds (1, 7)"));
  CHECK(contains(page, "1 of 2 claims hold"));
  CHECK(contains(page, "There is no point to draw"));
  // Three of five points are not finite or not positive, and one has no error bar.
  CHECK(contains(page, "Not drawn: 4 of 8 points that are not finite or not positive"));
  CHECK(contains(page, "roundoff study x --data &#39;a b&#39; --out r"));
  CHECK(contains(page, "@article{keyx"));
  CHECK(contains(page, "<td>roundoff &#39;a b&#39;</td>"));

  const auto json = nlohmann::json::parse(read(out / "result.json"));
  CHECK(json["claims"][1]["holds"] == false);
  CHECK(json["figures"][0]["series"][0]["y"][2] == "inf");
  CHECK(json["tables"][0]["rows"][1]["value_class"] == "nan");
  CHECK(json["seconds_provenance"] == "measured");
  for (const auto& file : json["files"]) {
    const std::string name = file.get<std::string>();
    CAPTURE(name);
    CHECK(fs::path(name) == fs::path(name).filename());
    if (fs::path(name).extension() != ".svg") CHECK(fs::exists(out / name));
  }
  // Two figures of one name are two files.
  CHECK(fs::exists(out / "bars-2.csv"));
  CHECK(fs::exists(out / "odd-name.gp"));
  CHECK(contains(read(out / "tables.tex"), "\\textless{}script\\textgreater{}"));
  CHECK(count(read(out / "tables.tex"), "\\end{table}") == 2);
  CHECK(read(out / "config.toml") == "quick = true\n");

  const auto seen = read_listing(out);
  REQUIRE(seen.has_value());
  CHECK(seen->held == 1);
  CHECK(seen->not_held == "second");
}

TEST_CASE("an earlier report is replaced, and anything else stays") {
  const testing::TemporaryFolder folder;
  const fs::path out = folder / "r";
  write_report(out, "x", hostile_result(), context());
  std::ofstream(out / "mine.csv") << "1";
  Result small;
  small.title = "small";
  write_report(out, "x", small, context());
  CHECK_FALSE(fs::exists(out / "bars.csv"));
  CHECK(read(out / "mine.csv") == "1");
  const fs::path other = folder / "other";
  fs::create_directories(other);
  std::ofstream(other / "result.json") << "{\"schema\": 3}";
  CHECK_FALSE(takes_report(other));
  CHECK_THROWS_AS(write_report(other, "x", small, context()), UsageError);
  CHECK(read(other / "result.json") == "{\"schema\": 3}");
  CHECK_FALSE(read_listing(other).has_value());
}

TEST_CASE("gnuplot draws every kind of figure, and ids of two of them differ") {
  const testing::TemporaryFolder folder;
  const fs::path out = folder / "r";
  write_report(out, "x", hostile_result(), context());
  if (!run_process({"gnuplot", "--version"}, folder / "", 10).found) {
    CHECK(contains(read(out / "index.html"), "apt-get install gnuplot-nox"));
    MESSAGE("skipped: gnuplot is not on this machine");
    return;
  }
  const std::string page = read(out / "index.html");
  CHECK(count(page, "<svg ") == 3);
  CHECK_FALSE(contains(page, "gnuplot ended"));
  CHECK(fs::exists(out / "odd-name.svg"));
  CHECK(contains(page, "id='figure-1-gpPt0'"));
  CHECK(contains(page, "id='figure-4-gpPt0'"));
  CHECK(count(page, "id='gpPt0'") == 0);
  CHECK(count(page, "'#gpPt") == 0);
  CHECK(contains(page, "aria-labelledby=\"figure-1-title figure-1-desc\""));
  // The script draws the same again.
  const std::string drawn = read(out / "odd-name.svg");
  fs::remove(out / "odd-name.svg");
  CHECK(run_process({"gnuplot", "-d", "odd-name.gp"}, out, 30).status == 0);
  CHECK(read(out / "odd-name.svg") == drawn);
}

TEST_CASE("without gnuplot a report shows the figures' data and says what to install") {
  const testing::TemporaryFolder folder;
  ReportContext c = context();
  c.gnuplot = "gnuplot-that-is-not-there";
  write_report(folder / "r", "x", hostile_result(), c);
  const std::string page = read(folder / "r" / "index.html");
  CHECK(contains(page, "apt-get install gnuplot-nox"));
  CHECK_FALSE(contains(page, "<svg"));
  CHECK(contains(page, "Table: bars"));
  // A program that fails is named with what it said.
  c.gnuplot = "false";
  write_report(folder / "s", "x", hostile_result(), c);
  CHECK(contains(read(folder / "s" / "index.html"), "gnuplot ended with status 1"));
}

TEST_CASE("a figure whose lengths contradict each other is refused by name") {
  Figure figure{"lengths", "", "", ""};
  figure.series = {{"s", {1, 2}, {1}}};
  CHECK_THROWS_WITH_AS(gnuplot_script(figure),
                       doctest::Contains("lengths: series 's' has 2 x, 1 y"), Error);
  CHECK_THROWS_AS(inline_svg("no svg", "a", "", ""), Error);
  CHECK_THROWS_AS(inline_svg("<svg><script>1</script></svg>", "a", "", ""), Error);
}

TEST_CASE("series of another provenance have a column, and a tag with their names") {
  Figure figure{"two-kinds", "Points and a prediction.", "n", "error"};
  figure.series = {{"seen", {1, 2}, {3, 4}, Series::Style::dots, {2, 3}, {4, 5}},
                   {"foreseen", {1, 2}, {3.5, 3.5}}};
  figure.series[1].provenance = Provenance::predicted;
  CHECK(provenances(figure) == std::vector{Provenance::measured, Provenance::predicted});
  const Table table = data_table(figure);
  std::vector<std::string> names;
  for (const Column& c : table.columns()) names.push_back(c.name);
  CHECK(names == std::vector<std::string>{"series", "n", "error, measured", "low, measured",
                                          "high, measured", "error, predicted"});
  CHECK(table.columns()[5].provenance == Provenance::predicted);
  CHECK(std::holds_alternative<std::monostate>(table.rows()[0][5]));
  CHECK(std::get<double>(table.rows()[0][4]) == 4);
  CHECK(std::holds_alternative<std::monostate>(table.rows()[2][2]));
  CHECK(std::get<double>(table.rows()[2][5]) == 3.5);
  const testing::TemporaryFolder folder;
  Result result;
  result.figures = {figure};
  write_report(folder / "r", "x", result, context());
  const std::string page = read(folder / "r" / "index.html");
  CHECK(contains(page, ">measured</span> seen"));
  CHECK(contains(page, ">predicted</span> foreseen"));
  const auto json = nlohmann::json::parse(read(folder / "r" / "result.json"));
  CHECK(json["figures"][0]["series"][1]["provenance"] == "predicted");
}

TEST_CASE("axes of what is never negative begin at zero, and legends fit below the plot") {
  Figure figure{"axes", "", "x", "y"};
  figure.series = {{"a", {1, 2}, {0, 4}}, {"b", {1, 2}, {1, 2}}, {"c", {1, 2}, {1, 2}}};
  CHECK(contains(gnuplot_script(figure), "set yrange [0:*]"));
  CHECK(contains(gnuplot_script(figure), "maxcols 3 maxrows 1"));
  figure.series[0].name = "one of a few words";
  CHECK(contains(gnuplot_script(figure), "maxcols 2 maxrows 2"));
  figure.series[0].name = "a legend's entry of many more words";
  CHECK(contains(gnuplot_script(figure), "maxcols 1 maxrows 3"));
  figure.series[0].y[0] = -1;
  CHECK_FALSE(contains(gnuplot_script(figure), "set yrange"));
  figure.series[0].y[0] = 3;  // far from zero: the axis shows the difference
  figure.series[1].y = figure.series[2].y = {3, 4};
  CHECK_FALSE(contains(gnuplot_script(figure), "set yrange"));
  figure.series[1].low = {-1, 2};
  figure.series[1].high = {4, 5};
  CHECK_FALSE(contains(gnuplot_script(figure), "set yrange"));
}

TEST_CASE("sentences of references hold no TeX, file names no half words") {
  const Reference reference{
      "k", "article", {{"author", "Doll{\\'a}r, P. and G{\\\"o}del, K."}, {"title", "{NaN}s"}}};
  CHECK(sentence(reference) == "Dolla\u0301r, P. and Go\u0308del, K., NaNs.");
  Result result;
  result.tables = {Table("A window of 64 images against the batch of 64", {{"a"}})};
  const testing::TemporaryFolder folder;
  write_report(folder / "r", "x", result, context());
  CHECK(fs::exists(folder / "r" / "table-1-a-window-of-64-images-against-the-batch.csv"));
}

TEST_CASE("a process is ended when its time is up, and its words are kept") {
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult slow = run_process({"sleep", "60"}, "/", 0.2);
  CHECK(slow.timed_out);
  CHECK(slow.found);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(50));
  const ProcessResult said = run_process({"ls", "no-such-file"}, "/", 20);
  CHECK(said.status != 0);
  CHECK(contains(said.output, "no-such-file"));
  CHECK_FALSE(run_process({"no-such-program-anywhere"}, "/", 5).found);
}

TEST_CASE("the list of studies says which held, failed and were skipped") {
  const testing::TemporaryFolder folder;
  Listing held{"a", "A", Listing::State::done, "", 2, 2, "", 1.5, true, "p"};
  Listing broken{"b", "B", Listing::State::done, "", 1, 2, kHostile, 1.5, false, "p"};
  Listing failed{"c", "", Listing::State::failed, kHostile, 0, 0, "", 0, false, "p"};
  Listing skipped{"d", "", Listing::State::skipped, "needs data", 0, 0, "", 0, false, "p"};
  write_index(folder / "", {held, broken, failed, skipped}, context());
  const std::string page = read(folder / "index.html");
  CHECK_FALSE(contains(page, "<script"));
  CHECK(contains(page, "<a href=\"a/index.html\">a</a>"));
  CHECK(contains(page, "all hold"));
  CHECK(contains(page, "not all hold"));
  CHECK(contains(page, "skipped: needs data"));
  const auto json = nlohmann::json::parse(read(folder / kStudiesFile));
  CHECK(json["studies"][1]["held"] == 1);
  CHECK(json["studies"][2]["state"] == "failed");
}

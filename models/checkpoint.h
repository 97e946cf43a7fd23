// Checkpoints: safetensors files with everything that a run goes on from.
//
//   <parameter>                    master weights, in their own dtype; convolutions KRSC
//   <buffer>                       BatchNorm's running statistics
//   optimizer.first.<parameter>    momentum or Adam's m, fp32
//   optimizer.second.<parameter>   Adam's v, fp32
//   optimizer.steps                [parameters] int64, updates of each
//   __metadata__                   "roundoff.run": JSON of progress, scaler, model, normalisation
//                                  "roundoff.sha256": checksum of all of it
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "models/trainer.h"

namespace roundoff {

// What a checkpoint says besides the trainer's state.
struct CheckpointNotes {
  double best_validation_loss = 0;
  std::int64_t best_epoch = 0;  // from 1; 0: none yet
  std::int64_t epochs_without_better = 0;
  double first_grad_norm = 0;
  double seconds = 0;
  double train_loss = 0;      // mean of the last finished epoch's updates
  double epoch_loss_sum = 0;  // of the running epoch's updates
  std::int64_t epoch_updates = 0;
  std::int64_t schedule_length = 0;
  Precision requested_precision = Precision::fp32;
};

// What evaluation needs to know before there is a trainer.
struct CheckpointModel {
  ModelSettings model;
  Precision precision = Precision::fp32;  // that it was trained in
  Precision requested_precision = Precision::fp32;
  std::string data;
  Normalization normalization;
  std::uint64_t seed = 0;
};

// Written to a temporary file, synced and renamed: an interrupted save leaves the old file. Settles
// the trainer, and throws what that throws.
void save_checkpoint(const std::filesystem::path& path, Trainer& trainer,
                     const CheckpointNotes& notes);

// All or nothing: the trainer is changed only after everything was checked. Throws FileError for a
// damaged file, Error for one that belongs to another model, precision, optimizer, data
// preparation or seed, naming both.
CheckpointNotes load_checkpoint(const std::filesystem::path& path, Trainer& trainer);

// The weights and buffers alone, into an arena that is allocated.
CheckpointModel read_checkpoint_model(const std::filesystem::path& path);
void load_weights(const std::filesystem::path& path, Model& model);

}  // namespace roundoff

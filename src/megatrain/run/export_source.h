// The weights that an export starts from: those of a run, of one of its checkpoints, or of a Hugging Face directory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/hub/model_files.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/files/kept_tensors.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

class ExportSource {
 public:
  // `path` is RUN, RUN/checkpoints/step-N, RUN/model, RUN/best or, if `directories`, any model directory. RUN means
  // RUN/best if the run is complete and that is better than its last model (best_model.h); otherwise its newest state:
  // the last checkpoint, or RUN/model if that has a later step. All are checked against their recorded hash. Throws
  // Error(bad_input), Error(corrupt_checkpoint).
  ExportSource(const std::string& path, bool directories);

  std::string from;   // the checkpoint, RUN/model or the directory
  int64_t step = -1;  // of the run; -1: not from a run
  std::string config_text, config_path;
  ModelConfig model;
  std::string tokenizer_directory;  // empty: it never existed or is gone
  std::string missing_tokenizer;    // where the missing tokenizer files used to be; empty: none is missing
  std::string chat_template;        // the run's own template file; empty: use the tokenizer's
  TensorTypes types;                // how the files before training stored a checkpoint's tensors; empty: as these do

  // The config.json of an export whose weights are of this dtype; `type`: the one that was asked for.
  std::string config_for(DType stored, std::optional<DType> type) const;

  std::vector<const TensorSpec*> tensors() const;  // in the model's order
  // dtype of the stored values; `tensor` is the model's name for it
  DType stored_type(const std::string& tensor) const;
  bool stored_narrow() const;  // some tensor is not fp32
  // The tensors of a multimodal model that an export has beside these. Throws Error(bad_input) if they are gone.
  KeptTensors kept() const { return {kept_directory_, model}; }
  PartReader reader(DType as) const;                   // values for this dtype; valid as long as this object
  void release(const TensorSpec& tensor) const;        // call when it is not read again
  void check_whole() const { files_->check_whole(); }  // call after reading everything

 private:
  std::string of_run(const std::string& path);
  std::string of_checkpoint(const std::string& path);
  std::string of_model_directory(const std::string& path, int64_t its_step);
  std::string of_directory(const std::string& path);
  void check_directory() const;
  bool was_in_other_form(const std::string& tensor) const;

  std::unique_ptr<const ModelFiles> files_;
  std::string kept_directory_;
  std::vector<LayerLayout> layouts_;  // the tensors of the model, as an export stores them
  std::vector<LayerLayout> held_;     // the same tensors as the files store them
  std::map<std::string, std::pair<const TensorSpec*, TensorSource>> sources_;  // by the model's tensor names
};

}  // namespace megatrain

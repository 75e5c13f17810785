// The weights that an export starts from, wherever they are: a run, one of its checkpoints, a Hugging Face directory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/hub/model_files.h"
#include "megatrain/model/config.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

class ExportSource {
 public:
  // `path` is RUN, RUN/checkpoints/step-N or, with `directories`, a model directory. Of a run it takes the newest
  // state: its last checkpoint, or RUN/model when that is of a later step; either is checked against its recorded hash.
  // Throws Error(bad_input), Error(corrupt_checkpoint).
  ExportSource(const std::string& path, bool directories);

  std::string from;   // the checkpoint, RUN/model or the directory
  int64_t step = -1;  // of a run; -1: of none
  std::string config_text, config_path;
  ModelConfig model;
  std::string tokenizer_directory;  // empty: there is none, or none any more
  std::string missing_tokenizer;    // where the tokenizer files were that are gone; empty: none is missing
  std::string chat_template;        // a file of the run's own; empty: the tokenizer's
  TensorTypes types;                // that a checkpoint's tensors had before; empty: as stored

  std::vector<const TensorSpec*> tensors() const;      // of the model, in its order
  DType stored_type(const std::string& tensor) const;  // in which the values are, by the model's name of it
  bool stored_narrow() const;                          // some tensor is not fp32
  PartReader reader() const;                           // while this stands
  void release(const TensorSpec& tensor) const;        // it is not read again
  void check_whole() const { files_->check_whole(); }  // when all have been read

 private:
  std::string of_run(const std::string& path);
  std::string of_checkpoint(const std::string& path);
  std::string of_directory(const std::string& path);
  void check_directory() const;

  std::unique_ptr<const ModelFiles> files_;
  std::vector<LayerLayout> layouts_;  // as the model has its tensors
  std::vector<LayerLayout> held_;     // in the form that the files hold them in
  std::map<std::string, std::pair<const TensorSpec*, TensorSource>> sources_;  // by the model's names
};

}  // namespace megatrain

// How files hold the tensors of a model: most as they are, some as parts of larger ones (Stored), experts in MXFP4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatrain/hub/model_files.h"
#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// As files write it: (cols) for a vector, (rows, cols) for a matrix.
std::vector<int64_t> tensor_shape(const TensorSpec& tensor);

// "model.layers.0.mlp.experts." of "model.layers.0.mlp.experts.7.up_proj.weight"; empty for what is no expert's.
std::string experts_prefix(const std::string& name);

// Where a tensor's values are.
struct TensorSource {
  const StoredTensor* values = nullptr;  // the tensor, the one it is part of, or the blocks of that one
  const StoredTensor* scales = nullptr;  // of the blocks; nullptr: the values are plain

  SourceType type() const {
    return scales ? SourceType(DType::bf16, WeightPacking::mxfp4) : SourceType(*parameter_type(values->dtype));
  }
  std::vector<std::string> names() const;  // in the files
};

// Throws Error(bad_input) where files lack it, hold it in another shape or type, or in two forms.
TensorSource find_source(const ModelFiles& files, const TensorSpec& tensor);

// Elements [begin, begin + count) of the tensor.
void read_source(const TensorSource& source, const TensorSpec& tensor, int64_t begin, int64_t count, float* out);

// As release_pages(), of what the tensor was read from.
void release_source(const TensorSource& source, const TensorSpec& tensor);

// A tensor as files hold it, and those of the model that it is made of.
struct FileTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<const TensorSpec*> parts;  // by slice; the tensor itself, where it is held as it is

  bool fused() const { return !parts.front()->stored.name.empty(); }
};

// In the order of their first parts. The tensors must outlive what is returned, and all parts be among them.
std::vector<FileTensor> file_tensors(const std::vector<const TensorSpec*>& tensors);

// Elements [begin, begin + count) of a file's tensor: of a fused one a slice.
struct FilePiece {
  const FileTensor* tensor;
  int64_t begin, count;
};
std::vector<FilePiece> cut_file_tensor(const FileTensor& tensor);

using PartReader = std::function<void(const TensorSpec& part, int64_t begin, int64_t count, float* out)>;

// The bytes of a piece in this type, from the values of the parts.
std::vector<std::byte> piece_bytes(const FilePiece& piece, DType type, const PartReader& read);

// The threads of `threads` (0: all usable CPUs) that may make pieces at once, so that they hold no more than
// kPieceScratchBytes each would.
int piece_team(const std::vector<FileTensor>& tensors, int threads);

// The text of an export's config.json: what it holds is not quantised, whatever the source was. A line in the log says
// where that is a change, and in which type the experts then are.
std::string unquantised_config(const std::string& text, DType type);

}  // namespace megatrain

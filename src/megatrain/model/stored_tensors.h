// How files store the tensors of a model: most of them unchanged, some as parts of larger tensors (Stored), some
// experts in MXFP4, and some matrices in block-scaled fp8.
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

// (cols) for a vector, (rows, cols) for a matrix, (rows, 1, cols) for a convolution.
std::vector<int64_t> tensor_shape(const TensorSpec& tensor);

// The name and the shape of the tensor in files that is this one or has it as a part.
const std::string& file_name(const TensorSpec& tensor);
std::vector<int64_t> file_shape(const TensorSpec& tensor);

// "model.layers.0.mlp.experts." for "model.layers.0.mlp.experts.7.up_proj.weight"; empty if the name is not an
// expert's.
std::string experts_prefix(const std::string& name);

// Where a tensor's values are stored.
struct TensorSource {
  const StoredTensor* values = nullptr;  // the tensor, the larger one it is part of, or that one's MXFP4 blocks
  const StoredTensor* scales = nullptr;  // scales of the blocks; nullptr: not packed
  WeightPacking packing = WeightPacking::none;
  bool in_other_form = false;  // the tensor is stored as `or_stored` says

  SourceType type() const {
    SourceType type = scales ? SourceType(DType::bf16, packing) : SourceType(*parameter_type(values->dtype));
    type.in_other_form = in_other_form;
    return type;
  }
  std::vector<std::string> names() const;  // in the files
};

// Throws Error(bad_input) if the files lack the tensor, or have it with another shape or type, or in two forms.
TensorSource find_source(const ModelFiles& files, const TensorSpec& tensor);

// The tensor as a source stores it.
TensorSpec in_form_of(bool other_form, const TensorSpec& tensor);

// Reads elements [begin, begin + count) of the tensor as fp32. Where the values depend on the dtype that computes, as
// those of fp8 do, they are those of `dtype`: fp32 or bf16.
void read_source(const TensorSource& source, const TensorSpec& tensor, DType dtype, int64_t begin, int64_t count,
                 float* out);

// All scales of a tensor in fp8.
std::vector<float> read_fp8_scales(const TensorSource& source);

// Calls release_pages() for the file contents that the tensor was read from.
void release_source(const TensorSource& source, const TensorSpec& tensor);

// The same piece by piece, behind each read_source() of a tensor's consecutive pieces. A tensor that lies in one run of
// its file is released as it is read, another one behind its last piece.
void release_source(const TensorSource& source, const TensorSpec& tensor, int64_t begin, int64_t count);

// A tensor as files store it, and the model's tensors that it consists of.
struct FileTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<const TensorSpec*> parts;  // ordered by slice; one entry if the tensor is stored unchanged

  bool fused() const { return !parts.front()->stored.name.empty(); }
};

// In the order of their first parts. `tensors` must include all parts, and must outlive the result.
std::vector<FileTensor> file_tensors(const std::vector<const TensorSpec*>& tensors);

// Elements [begin, begin + count) of a file's tensor; for a fused one, a whole slice, or all if slices are columns.
struct FilePiece {
  const FileTensor* tensor;
  int64_t begin, count;
};
std::vector<FilePiece> cut_file_tensor(const FileTensor& tensor);

using PartReader = std::function<void(const TensorSpec& part, int64_t begin, int64_t count, float* out)>;

// The bytes of a piece in this type, converted from the values of its parts.
std::vector<std::byte> piece_bytes(const FilePiece& piece, DType type, const PartReader& read);

// How many of `threads` (0: all usable CPUs) may produce pieces at once, so that their total scratch is no more than
// kPieceScratchBytes for each of `threads`.
int piece_team(const std::vector<FileTensor>& tensors, int threads);

// The config.json of an export. An export is never quantised, whatever the source was, so quantization_config is
// dropped. If that is a change, the log says so and names the type of the weights that were packed.
std::string unquantised_config(const std::string& text, DType type);

}  // namespace megatrain

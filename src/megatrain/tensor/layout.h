// A layer's layout: every size and offset is derived from one list of tensor specs.
//
// A tensor has up to three offsets:
//   offset         in the weights, which hold every tensor
//   state_offset   in the gradient and the moments, which hold only trained tensors: frozen ones take no space there
//   low_offset     in the low bits of the master, which hold the tensors whose master is wider than what streams
// If nothing is frozen, the offsets that a tensor has are equal. A tensor starts at a multiple of kTensorAlign elements
// (256 bytes in bf16), unless it continues its predecessor's operand. The gaps are zero in every plane and stay zero.
//
// Weights have a compute form, described above, and a stored form, in which they live and travel. The two differ only
// for a packed record: nothing in it is trained, and its source has some of its tensors in fewer bits. The stored form
// then has these tensors as the source has them and the others in the compute form, at `packed_offset` in bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "megatrain/base/math.h"
#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/packing.h"
#include "megatrain/tensor/state_format.h"

namespace megatrain {

inline constexpr int64_t kTensorAlign = 128;  // elements

// What a tensor is to its layer. Its shape in files, initial values and weight decay follow from this.
// The two halves of a LoRA adapter, the magnitudes of DoRA, and trained rows of a frozen table (model/token_rows.h)
// have roles of their own: no file of the model has them.
enum class TensorRole : uint8_t {
  matrix,
  filter,  // of a depthwise convolution, (channels, 1, taps) in files; no matmul multiplies by it, so it has no adapter
  embedding,
  norm,
  bias,
  vector,  // any other one
  buffer,  // a vector that nothing trains
  adapter_in,
  adapter_out,
  adapter_magnitude,
  token_rows
};

// The initial values of a vector.
enum class VectorInit : uint8_t {
  by_role,  // norms multiply by one, the others are zero
  ones,
  log_of_uniform,  // logarithms of numbers between 0.01 and 16
  log_of_place,    // logarithms of 1, 2, 3, …
};

enum class AdapterInit : uint8_t {
  kaiming,   // A uniform between -1 / sqrt(in) and 1 / sqrt(in), B zero
  gaussian,  // A normal with a deviation of 1 / r, B zero
};

// What an adapter's halves share.
struct AdapterSpec {
  float scale = 0;    // multiplies the product of the two halves
  float dropout = 0;  // of the input, in training
  AdapterInit init = AdapterInit::kaiming;
};

// Where files store a tensor that is a part of a larger one. Row r of our tensor (element r of a vector) is row
// first_row + r * row_step of slice `index` of a tensor (slices, rows, cols), or (slices, rows) for vectors.
//
// The halves of an expert's adapter lie in matrices too, with those of all experts of the layer, as PEFT has them:
//   first half, (slices * rows, cols):    row r is row index * rows + r
//   second half, (rows, cols * slices):   column c is column c * slices + index. Row r is row (r * row_step) % rows +
//                                         r * row_step / rows: gate and up rows may be interleaved there
struct Stored {
  std::string name;  // in the files; empty: stored whole, under its own name
  int64_t slices = 0;
  int64_t index = 0;
  int64_t rows = 0;  // per slice
  int64_t first_row = 0;
  int64_t row_step = 1;
  // Slices are stored as (cols, rows). For an adapter's half: those of the parameter are.
  bool transposed = false;
  // Files may hold NAME_blocks and NAME_scales instead; slices of these are never transposed.
  bool mxfp4 = false;
};

// The parameter in which transformers has a matrix of an expert, with those of all experts of its layer.
struct ExpertParameter {
  std::string name;       // "model.layers.0.mlp.experts.gate_up_proj"; empty: not a matrix of an expert
  int64_t rows = 0;       // of the parameter, for one expert
  int64_t first_row = 0;  // of the matrix, if gate rows come before up rows
  int64_t row_step = 1;   // 2: gate and up rows are interleaved in the parameter
};

struct TensorSpec {
  std::string name;  // Hugging Face name; our own for a part of a stored tensor
  int64_t rows = 0;  // 1 for a vector
  int64_t cols = 0;
  TensorRole role = TensorRole::matrix;
  // Which operand of the layer's matmuls this belongs to, numbered by the layer. Consecutive tensors of one operand lie
  // without gaps, so that they form one matrix (q, k, v). -1: an operand of its own.
  int operand = -1;
  // Which part of its record this belongs to, ascending: an expert. The gradient norm sums each part separately, so it
  // does not depend on how many parts a record holds.
  int64_t part = 0;
  Stored stored = {};     // how files hold it
  Stored or_stored = {};  // how other files hold it, if `stored` says that it is stored whole
  ExpertParameter parameter = {};
  DType dtype = DType::bf16;  // the weights that stream
  DType master = DType::f32;  // what updates work on; equal to `dtype`: results are rounded to it
  bool trainable = true;      // false: frozen
  VectorInit init = VectorInit::by_role;
  AdapterSpec adapter = {};  // only for the tensors of an adapter
  bool exact = false;        // frozen, and `dtype` holds its values: the master's low bits are zero and not stored
  WeightPacking packing = WeightPacking::none;  // for a frozen tensor: how its source stores it
  int64_t offset = 0;                           // elements from the start of the layer's weights; set by make_layout
  int64_t state_offset = -1;   // elements from the start of the gradient and moments, -1: frozen; set by make_layout
  int64_t low_offset = -1;     // elements from the start of the low bits, -1: has none; set by make_layout
  int64_t first_block = -1;    // index of its first moment block in the layer; -1: frozen; set by make_layout
  int64_t packed_offset = -1;  // bytes from the start of a packed record's stored form; set by make_layout
  // Only for trained rows of a table: the tokens whose rows they are.
  std::vector<int32_t> ids = {};

  int64_t elements() const { return rows * cols; }
  bool is_vector() const {  // (cols), not (rows, cols)
    return role == TensorRole::norm || role == TensorRole::bias || role == TensorRole::vector ||
           role == TensorRole::buffer || role == TensorRole::adapter_magnitude;
  }
  bool decays() const { return !is_vector(); }
  bool is_half() const { return role == TensorRole::adapter_in || role == TensorRole::adapter_out; }
  bool is_adapter() const {  // trained beside a frozen base
    return is_half() || role == TensorRole::adapter_magnitude || role == TensorRole::token_rows;
  }
  bool has_low_bits() const { return master != dtype && !exact; }

  // Moment blocks, which share a scale, restart after this many elements: every row in an embedding.
  int64_t block_row() const { return role == TensorRole::embedding ? cols : elements(); }
  int64_t row_blocks() const { return row_state_blocks(block_row()); }
  int64_t blocks() const { return elements() == 0 ? 0 : elements() / block_row() * row_blocks(); }
  int64_t block_of(int64_t element) const { return state_block_of(element, block_row()); }  // index within the tensor

  int64_t packed_bytes() const {  // in the stored form of a packed record
    return packing == WeightPacking::none ? elements() * dtype_bytes(dtype)
                                          : megatrain::packed_bytes(packing, rows, cols);
  }
  // Where a packed tensor's scales begin, in bytes from the start of its record's stored form.
  int64_t scales_offset() const { return packed_offset + packed_scales_at(packing, rows, cols); }

  uint64_t name_hash() const;  // gives each tensor its own stream of random numbers
};

// Trained elements that are contiguous in all coordinates.
struct TrainedRun {
  int64_t offset;
  int64_t state_offset;
  int64_t low_offset;  // -1: no low bits
  int64_t count;
};

struct ElementRange {
  int64_t begin;
  int64_t count;
};

struct LayerLayout {
  std::vector<TensorSpec> tensors;
  int64_t elements = 0;        // with padding; a multiple of kTensorAlign
  int64_t state_elements = 0;  // the same, trained tensors only; 0: all are frozen
  int64_t low_elements = 0;    // the same, tensors with low bits only
  int64_t state_blocks = 0;    // moment blocks of the trained tensors
  int64_t packed_bytes = 0;    // size of a packed record's stored form; 0: not packed
  MomentFormat moments = MomentFormat::fp32;

  int64_t parameters() const {
    int64_t sum = 0;
    for (const TensorSpec& t : tensors) sum += t.elements();
    return sum;
  }

  // All tensors of a layer share these.
  DType dtype() const { return tensors.front().dtype; }
  DType master() const { return tensors.front().master; }
  // The dtype in which the rounded gradient leaves the device or waits: what AdamW takes with weights of `dtype`.
  DType gradient_dtype() const { return dtype(); }

  bool is_adapter() const { return tensors.front().is_adapter(); }
  bool is_buffers() const { return tensors.front().role == TensorRole::buffer; }
  bool is_token_rows() const { return tensors.front().role == TensorRole::token_rows; }
  bool packed() const { return packed_bytes > 0; }
  int64_t weight_bytes() const { return elements * dtype_bytes(dtype()); }           // in the compute form
  int64_t stored_bytes() const { return packed() ? packed_bytes : weight_bytes(); }  // in the stored form

  // The planes of m and v: elements by state_offset, followed for int8 by the scales, one per block.
  int64_t scales_offset() const { return state_elements * moment_element_bytes(moments); }
  int64_t moment_bytes() const { return scales_offset() + (moments == MomentFormat::int8 ? 4 * state_blocks : 0); }

  std::vector<TrainedRun> trained_runs() const;  // of maximal length, gaps between tensors included
  std::vector<ElementRange> state_gaps() const;  // in the gradient and the moments
  // The parts of the gradient, consecutive and without gaps; frozen parts are empty. At least one.
  std::vector<ElementRange> norm_parts() const;
};

// All tensors must have the same dtype and the same master.
LayerLayout make_layout(std::vector<TensorSpec> tensors, MomentFormat moments = MomentFormat::fp32);

// The layouts with their state stored in this format. A stochastic master is the streamed weight itself.
std::vector<LayerLayout> with_format(std::vector<LayerLayout> layouts, StateFormat format);

// How a source stores a tensor: the type that holds all its values, how they are packed, and where.
struct SourceType {
  DType dtype = DType::bf16;
  WeightPacking packing = WeightPacking::none;
  bool in_other_form = false;  // as TensorSpec::or_stored says

  SourceType() = default;
  SourceType(DType type, WeightPacking packed = WeightPacking::none) : dtype(type), packing(packed) {}
  operator DType() const { return dtype; }
};
using TensorTypes = std::map<std::string, SourceType>;  // by name

// The layouts with frozen tensors stored as in their source, which `stored` describes. They have no low bits if the
// source has the type that streams, and are packed if the source is. Tensors that `stored` does not name keep their low
// bits.
std::vector<LayerLayout> as_in_source(std::vector<LayerLayout> layouts, const TensorTypes& stored);

// The layouts without a master and with nothing trained, for code that only reads weights.
std::vector<LayerLayout> weights_only(std::vector<LayerLayout> layouts);

}  // namespace megatrain

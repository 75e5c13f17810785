// One list of tensor specs gives a layer's layout: every size and offset derives from it.
//
// A layer has three coordinates. Its weights hold every tensor, by `offset`. Its gradient and moments hold the trained
// tensors alone, by `state_offset`, so that frozen ones take no room there. The low bits of its master hold, by
// `low_offset`, the tensors whose master is wider than what streams. When nothing is frozen, all that a tensor has are
// equal. Unless it is of its predecessor's operand a tensor starts at a multiple of kTensorAlign elements (256 bytes in
// bf16); the gaps are zero in every plane and stay zero.
//
// The weights have a compute form, which the above describes, and a stored form, in which they live and travel. The two
// are one unless a record is packed: nothing of it is trained, and its source has some of its tensors in fewer bits.
// The stored form then has these as the source has them, the others as they compute, by `packed_offset` in bytes.
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

// What a tensor is to its layer: shape in files, initial values and weight decay follow from it.
enum class TensorRole : uint8_t { matrix, embedding, norm, bias };

// Where files hold a tensor that is only a part of one of theirs: row r of it (element r of a vector) is row
// first_row + r * row_step of the slice `index` of a tensor (slices, rows, cols), or (slices, rows) for vectors.
struct Stored {
  std::string name;  // in the files; empty: the tensor is stored whole, under its own name
  int64_t slices = 0;
  int64_t index = 0;
  int64_t rows = 0;  // of a slice
  int64_t first_row = 0;
  int64_t row_step = 1;
  bool transposed = false;  // a slice lies as (cols, rows)
  bool mxfp4 = false;       // files may hold NAME_blocks and NAME_scales in its place, their slices never transposed
};

struct TensorSpec {
  std::string name;  // Hugging Face name; of a part of a stored tensor our own
  int64_t rows = 0;  // 1 for a vector
  int64_t cols = 0;
  TensorRole role = TensorRole::matrix;
  int operand = -1;    // of the layer's maths, by the layer's own numbers; tensors of one operand that follow each
                       // other are packed, so that they are one matrix (q, k, v); -1: it stands alone
  int64_t part = 0;    // of its record, ascending: an expert. The gradient's norm sums each part by itself, so that it
                       // does not depend on how many parts a record holds
  Stored stored = {};  // how files hold it
  DType dtype = DType::bf16;  // that streams
  DType master = DType::f32;  // that updates work on; `dtype` itself: what is written is rounded to it
  bool trainable = true;      // false: frozen
  bool exact = false;         // frozen, and `dtype` holds its values: the master's low bits are zero and not stored
  WeightPacking packing = WeightPacking::none;  // of a frozen tensor, as its source has it
  int64_t offset = 0;                           // elements from the start of the layer's weights; set by make_layout
  int64_t state_offset = -1;   // elements from the start of its gradient and moments, -1: frozen; set by make_layout
  int64_t low_offset = -1;     // elements from the start of the low bits, -1: it has none; set by make_layout
  int64_t first_block = -1;    // of its moments, among the layer's; -1: frozen; set by make_layout
  int64_t packed_offset = -1;  // bytes from the start of a packed record's stored form; set by make_layout

  int64_t elements() const { return rows * cols; }
  bool is_vector() const { return role == TensorRole::norm || role == TensorRole::bias; }  // (cols), not (rows, cols)
  bool decays() const { return !is_vector(); }
  bool has_low_bits() const { return master != dtype && !exact; }

  // Blocks of moments that share a scale begin anew after so many elements: in an embedding with every row.
  int64_t block_row() const { return role == TensorRole::embedding ? cols : elements(); }
  int64_t row_blocks() const { return row_state_blocks(block_row()); }
  int64_t blocks() const { return elements() == 0 ? 0 : elements() / block_row() * row_blocks(); }
  int64_t block_of(int64_t element) const { return state_block_of(element, block_row()); }  // among the tensor's

  int64_t packed_bytes() const {  // in the stored form of a packed record
    return packing == WeightPacking::none ? elements() * dtype_bytes(dtype)
                                          : megatrain::packed_bytes(packing, elements());
  }

  uint64_t name_hash() const;  // of the name: one stream of random numbers a tensor
};

// Trained elements that lie one after the other in all coordinates.
struct TrainedRun {
  int64_t offset;
  int64_t state_offset;
  int64_t low_offset;  // -1: there are no low bits
  int64_t count;
};

struct ElementRange {
  int64_t begin;
  int64_t count;
};

struct LayerLayout {
  std::vector<TensorSpec> tensors;
  int64_t elements = 0;        // padding included; a multiple of kTensorAlign
  int64_t state_elements = 0;  // the same of the trained tensors; 0: all are frozen
  int64_t low_elements = 0;    // the same of the tensors with low bits
  int64_t state_blocks = 0;    // of the trained tensors' moments
  int64_t packed_bytes = 0;    // of the stored form of a packed record; 0: it is not packed
  MomentFormat moments = MomentFormat::fp32;

  int64_t parameters() const {
    int64_t sum = 0;
    for (const TensorSpec& t : tensors) sum += t.elements();
    return sum;
  }

  // Of every tensor.
  DType dtype() const { return tensors.front().dtype; }
  DType master() const { return tensors.front().master; }
  // In which its rounded gradient leaves the device or waits: what AdamW takes beside weights of `dtype`.
  DType gradient_dtype() const { return dtype(); }

  bool packed() const { return packed_bytes > 0; }
  int64_t weight_bytes() const { return elements * dtype_bytes(dtype()); }           // as they compute
  int64_t stored_bytes() const { return packed() ? packed_bytes : weight_bytes(); }  // as they live and travel

  // Of the plane of m, and of v: the elements by state_offset, and behind those of int8 the scales by block.
  int64_t scales_offset() const { return state_elements * moment_element_bytes(moments); }
  int64_t moment_bytes() const { return scales_offset() + (moments == MomentFormat::int8 ? 4 * state_blocks : 0); }

  std::vector<TrainedRun> trained_runs() const;  // the longest there are, gaps between their tensors included
  std::vector<ElementRange> state_gaps() const;  // of the gradient and the moments
  // The gradient's parts, one after the other without gaps; those that are frozen are empty. At least one.
  std::vector<ElementRange> norm_parts() const;
};

// The tensors have one dtype and one master.
LayerLayout make_layout(std::vector<TensorSpec> tensors, MomentFormat moments = MomentFormat::fp32);

// The layouts with their state stored in this format. A stochastic master is the weight that streams itself.
std::vector<LayerLayout> with_format(std::vector<LayerLayout> layouts, StateFormat format);

// What a source has a tensor in: the type that holds all its values, and how they are packed there.
struct SourceType {
  DType dtype = DType::bf16;
  WeightPacking packing = WeightPacking::none;

  SourceType() = default;
  SourceType(DType type, WeightPacking packed = WeightPacking::none) : dtype(type), packing(packed) {}
  operator DType() const { return dtype; }
};
using TensorTypes = std::map<std::string, SourceType>;  // by name

// The layouts with frozen tensors as their source has them, which `stored` says: without low bits where it has them in
// the type that streams, and packed where it has them so. A tensor that it does not name keeps its low bits.
std::vector<LayerLayout> as_in_source(std::vector<LayerLayout> layouts, const TensorTypes& stored);

// The layouts without a master and with nothing trained, for what only reads weights.
std::vector<LayerLayout> weights_only(std::vector<LayerLayout> layouts);

}  // namespace megatrain

// One list of tensor specs gives a layer's layout: every size and offset derives from it.
//
// All planes of a layer (weights, low bits, m, v, gradient) share element offsets, so one offset serves every plane.
// Unless fused with its predecessor a tensor starts at a multiple of kTensorAlign elements (256 bytes in bf16); the
// gaps are zero in every plane and stay zero.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatrain {

inline constexpr int64_t kTensorAlign = 128;  // elements

struct TensorSpec {
  std::string name;  // Hugging Face name
  int64_t rows = 0;  // 1 for a vector
  int64_t cols = 0;
  bool vector = false;  // shape is (cols), not (rows, cols)
  bool decay = false;   // weight decay applies
  bool fused = false;   // packed right behind the previous tensor, so that both are one matrix (q,k,v; gate,up)
  int64_t offset = 0;   // elements from the start of the layer; set by make_layout

  int64_t elements() const { return rows * cols; }
};

struct LayerLayout {
  std::vector<TensorSpec> tensors;
  int64_t elements = 0;  // padding included; a multiple of kTensorAlign

  int64_t parameters() const {
    int64_t sum = 0;
    for (const TensorSpec& t : tensors) sum += t.elements();
    return sum;
  }
};

LayerLayout make_layout(std::vector<TensorSpec> tensors);

}  // namespace megatrain

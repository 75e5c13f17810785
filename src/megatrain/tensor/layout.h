// One list of tensor specs gives a layer's layout: every size and offset derives from it.
//
// A layer has two coordinates. Its weights and their low bits hold every tensor, by `offset`. Its gradient and moments
// hold the trained tensors alone, by `state_offset`, so that frozen ones take no room there; when nothing is frozen the
// two are equal. Unless fused with its predecessor a tensor starts at a multiple of kTensorAlign elements (256 bytes in
// bf16); the gaps are zero in every plane and stay zero.
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
  bool vector = false;        // shape is (cols), not (rows, cols)
  bool decay = false;         // weight decay applies
  bool fused = false;         // packed right behind the previous tensor, so that both are one matrix (q,k,v; gate,up)
  bool trainable = true;      // false: frozen
  int64_t offset = 0;         // elements from the start of the layer's weights; set by make_layout
  int64_t state_offset = -1;  // elements from the start of its gradient and moments, -1: frozen; set by make_layout

  int64_t elements() const { return rows * cols; }
};

// Trained elements that lie one after the other in both coordinates.
struct TrainedRun {
  int64_t offset;
  int64_t state_offset;
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

  int64_t parameters() const {
    int64_t sum = 0;
    for (const TensorSpec& t : tensors) sum += t.elements();
    return sum;
  }

  std::vector<TrainedRun> trained_runs() const;  // the longest there are, gaps between their tensors included
  std::vector<ElementRange> state_gaps() const;  // of the gradient and the moments
};

LayerLayout make_layout(std::vector<TensorSpec> tensors);

}  // namespace megatrain

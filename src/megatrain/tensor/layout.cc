#include "megatrain/tensor/layout.h"

#include <algorithm>
#include <utility>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"

namespace megatrain {

uint64_t TensorSpec::name_hash() const {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

namespace {

// Lays out the stored form if the record is packed: no tensor is trained, and at least one has a packing.
void place_packed(LayerLayout& layout) {
  const auto has_packing = [](const TensorSpec& tensor) { return tensor.packing != WeightPacking::none; };
  if (layout.state_elements > 0 || std::ranges::none_of(layout.tensors, has_packing)) return;
  for (TensorSpec& tensor : layout.tensors) {
    tensor.packed_offset = round_up(layout.packed_bytes, kPackedAlignment);
    layout.packed_bytes = tensor.packed_offset + tensor.packed_bytes();
  }
  layout.packed_bytes = round_up(layout.packed_bytes, kPackedAlignment);
}

}  // namespace

LayerLayout make_layout(std::vector<TensorSpec> tensors, MomentFormat moments) {
  LayerLayout layout;
  layout.tensors = std::move(tensors);
  layout.moments = moments;
  bool trained_before = false, low_before = false;
  int operand_before = -1;
  for (TensorSpec& tensor : layout.tensors) {
    ensure(tensor.dtype == layout.dtype() && tensor.master == layout.master(), "a layer's tensors have one dtype");
    ensure(!tensor.exact || !tensor.trainable, "the low bits of a trained tensor are stored");
    const bool packed = tensor.operand >= 0 && tensor.operand == operand_before;
    const auto place = [&](int64_t& end, bool behind) {
      const int64_t begin = behind ? end : round_up(end, kTensorAlign);
      end = begin + tensor.elements();
      return begin;
    };
    tensor.offset = place(layout.elements, packed);
    tensor.state_offset = tensor.trainable ? place(layout.state_elements, packed && trained_before) : -1;
    tensor.low_offset = tensor.has_low_bits() ? place(layout.low_elements, packed && low_before) : -1;
    tensor.first_block =
        tensor.trainable ? std::exchange(layout.state_blocks, layout.state_blocks + tensor.blocks()) : -1;
    trained_before = tensor.trainable;
    low_before = tensor.has_low_bits();
    operand_before = tensor.operand;
  }
  layout.elements = round_up(layout.elements, kTensorAlign);
  layout.state_elements = round_up(layout.state_elements, kTensorAlign);
  layout.low_elements = round_up(layout.low_elements, kTensorAlign);
  place_packed(layout);
  return layout;
}

std::vector<LayerLayout> as_in_source(std::vector<LayerLayout> layouts, const TensorTypes& stored) {
  for (LayerLayout& layout : layouts) {
    for (TensorSpec& tensor : layout.tensors) {
      const auto found = stored.find(tensor.name);
      const bool frozen = !tensor.trainable && found != stored.end();
      tensor.exact = frozen && tensor.master != tensor.dtype && found->second.dtype == tensor.dtype;
      tensor.packing = frozen ? found->second.packing : WeightPacking::none;
    }
    layout = make_layout(std::move(layout.tensors), layout.moments);
  }
  return layouts;
}

std::vector<LayerLayout> weights_only(std::vector<LayerLayout> layouts) {
  for (LayerLayout& layout : layouts) {
    for (TensorSpec& tensor : layout.tensors) {
      tensor.master = tensor.dtype;
      tensor.trainable = false;
      tensor.packing = WeightPacking::none;
    }
    layout = make_layout(std::move(layout.tensors));
  }
  return layouts;
}

std::vector<LayerLayout> with_format(std::vector<LayerLayout> layouts, StateFormat format) {
  for (LayerLayout& layout : layouts) {
    if (format.master == MasterFormat::stochastic) {
      for (TensorSpec& tensor : layout.tensors) tensor.master = tensor.dtype;
    }
    layout = make_layout(std::move(layout.tensors), format.moments);
  }
  return layouts;
}

std::vector<TrainedRun> LayerLayout::trained_runs() const {
  std::vector<TrainedRun> runs;
  bool trained_before = false;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.trainable) {
      const auto goes_on = [&](const TrainedRun& run) {
        const int64_t distance = tensor.offset - run.offset;
        return tensor.state_offset - run.state_offset == distance &&
               (!tensor.has_low_bits() || tensor.low_offset - run.low_offset == distance);
      };
      if (!trained_before || !goes_on(runs.back()))
        runs.push_back({tensor.offset, tensor.state_offset, tensor.low_offset, 0});
      runs.back().count = tensor.offset + tensor.elements() - runs.back().offset;
    }
    trained_before = tensor.trainable;
  }
  return runs;
}

std::vector<ElementRange> LayerLayout::norm_parts() const {
  std::vector<ElementRange> parts(static_cast<size_t>(tensors.back().part) + 1);
  // End of the current part; it reaches up to the next part with a trained tensor.
  int64_t end = state_elements;
  for (size_t part = parts.size(), t = tensors.size(); part-- > 0;) {
    int64_t begin = end;
    for (; t > 0 && tensors[t - 1].part == static_cast<int64_t>(part); --t) {
      if (tensors[t - 1].trainable) begin = tensors[t - 1].state_offset;
    }
    parts[part] = {begin, end - begin};
    end = begin;
  }
  return parts;
}

std::vector<ElementRange> LayerLayout::state_gaps() const {
  std::vector<ElementRange> gaps;
  int64_t end = 0;
  const auto until = [&](int64_t begin) {
    if (begin > end) gaps.push_back({end, begin - end});
  };
  for (const TensorSpec& tensor : tensors) {
    if (!tensor.trainable) continue;
    until(tensor.state_offset);
    end = tensor.state_offset + tensor.elements();
  }
  until(state_elements);
  return gaps;
}

}  // namespace megatrain

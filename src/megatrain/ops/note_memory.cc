#include "megatrain/ops/note_memory.h"

#include <algorithm>

#include "megatrain/base/math.h"
#include "megatrain/base/rng.h"

namespace megatrain {

namespace {

constexpr int64_t kAlignment = 256;
constexpr uint64_t kPurpose = 0x6e6f746573;  // "notes"

// Gives every operand of a call its place behind `base`; without a base it only counts.
class Placer {
 public:
  Placer(std::byte* base, Stream& stream, std::vector<int32_t>& document_begin)
      : base_(base), stream_(stream), document_begin_(document_begin) {}

  int64_t bytes() const { return offset_; }

  void operator()(LinearForward& a) { place(a.x, a.weight, a.bias, a.residual, a.out); }
  void operator()(LinearBackwardInput& a) { place(a.grad_out, a.weight, a.grad_x); }
  void operator()(LinearBackwardWeight& a) { place(a.grad_out, a.x, a.grad_weight, a.grad_bias); }
  void operator()(AttentionForward& a) {
    place(a.q, a.k, a.v, a.out);
    a.lse = floats(a.shape.heads * a.shape.tokens);
    documents(a.shape, a.documents);
  }
  void operator()(AttentionBackward& a) {
    place(a.q, a.k, a.v, a.out, a.grad_out, a.grad_q, a.grad_k, a.grad_v);
    a.lse = floats(a.shape.heads * a.shape.tokens);
    documents(a.shape, a.documents);
  }
  void operator()(RmsNormForward& a) {
    place(a.x, a.weight, a.residual, a.out);
    a.inv_rms = floats(a.x.rows * a.groups);
  }
  void operator()(RmsNormBackward& a) {
    place(a.x, a.weight, a.grad_out, a.residual, a.grad_x, a.grad_weight);
    a.inv_rms = floats(a.x.rows * a.groups);
  }
  void operator()(Rope& a) {
    place(a.x);
    a.positions = list(std::vector<int32_t>(static_cast<size_t>(a.x.rows), 0));
    a.cos = floats(a.rotary_dim / 2);
    a.sin = floats(a.rotary_dim / 2);
  }
  void operator()(GatedForward& a) { place(a.gate_up, a.out); }
  void operator()(GatedBackward& a) { place(a.gate_up, a.grad_out, a.grad_gate_up, a.out); }
  void operator()(CrossEntropy& a) {
    place(a.logits);
    std::vector<int32_t> labels;
    for (int64_t t = 0; t < a.logits.rows; ++t) {
      labels.push_back(static_cast<int32_t>(
          random_below(1, kPurpose, static_cast<uint64_t>(t), static_cast<uint64_t>(a.logits.cols))));
    }
    a.labels = list(labels);
    a.loss = floats(a.logits.rows);
    a.correct = list(labels);
  }

 private:
  std::byte* take(int64_t bytes) {
    std::byte* piece = base_ ? base_ + offset_ : nullptr;
    offset_ += round_up(bytes, kAlignment);
    return piece;
  }

  template <class... Views>
  void place(Views&... views) {
    (place_one(views), ...);
  }
  void place_one(View& view) {
    if (view.empty()) return;
    const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data) % kAlignment);
    std::byte* piece = take(misaligned + view.rows * std::max(view.row_stride, view.cols) * dtype_bytes(view.dtype));
    if (piece) view.data = piece + misaligned;
  }

  float* floats(int64_t count) { return reinterpret_cast<float*>(take(count * 4)); }

  int32_t* list(const std::vector<int32_t>& values) {
    std::byte* piece = take(static_cast<int64_t>(values.size() * sizeof(int32_t)));
    if (piece) {
      stream_.copy(piece, values.data(), values.size() * sizeof(int32_t));
      stream_.synchronize();
    }
    return reinterpret_cast<int32_t*>(piece);
  }

  void documents(const AttentionShape& shape, Documents& documents) {
    document_begin_.clear();
    for (int64_t d = 0; d <= documents.count; ++d)
      document_begin_.push_back(static_cast<int32_t>(std::min(d * documents.longest, shape.tokens)));
    documents.begin = list(document_begin_);
    documents.host_begin = document_begin_.data();
  }

  std::byte* base_;
  Stream& stream_;
  std::vector<int32_t>& document_begin_;
  int64_t offset_ = 0;
};

}  // namespace

NoteMemory::NoteMemory(Device& device, Stream& stream) : device_(device), stream_(stream), pattern_(size_t{1} << 20) {
  for (size_t i = 0; i < pattern_.size(); ++i)
    pattern_[i] = to_bf16(static_cast<float>(random_uniform(1, kPurpose, i) - 0.5));
}

// The pattern once, and what is filled so far again and again.
void NoteMemory::fill(int64_t bytes) {
  int64_t filled = std::min(bytes, static_cast<int64_t>(pattern_.size() * sizeof(bf16)));
  stream_.copy(arena_.data(), pattern_.data(), static_cast<size_t>(filled));
  while (filled < bytes) {
    const int64_t more = std::min(filled, bytes - filled);
    stream_.copy(arena_.data() + filled, arena_.data(), static_cast<size_t>(more));
    filled += more;
  }
}

OpNote NoteMemory::place(const OpNote& note) {
  OpNote placed = note;
  Placer count(nullptr, stream_, document_begin_);
  std::visit(count, placed);
  if (static_cast<int64_t>(arena_.bytes()) < count.bytes()) {
    arena_ = Buffer();  // given back first, so that both never exist at once
    arena_ = device_.allocate(static_cast<size_t>(count.bytes()), "timed calls");
  }
  fill(count.bytes());
  placed = note;
  Placer placer(arena_.data(), stream_, document_begin_);
  std::visit(placer, placed);
  stream_.synchronize();
  return placed;
}

}  // namespace megatrain

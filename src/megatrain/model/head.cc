#include "megatrain/model/head.h"

#include <algorithm>

#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/model/carve.h"

namespace megatrain {

struct HeadTemplate::Work {
  View normed;       // (C, H)
  float* inv_rms;    // (C)
  View logits;       // (C, V)
  View grad_normed;  // (C, H)
  int64_t bytes;
};

HeadTemplate::HeadTemplate(const ModelConfig& config, DType dtype, int64_t tokens, int64_t chunk)
    : vocab_(config.vocab),
      hidden_(config.hidden),
      eps_(static_cast<float>(config.norm_eps)),
      dtype_(dtype),
      tokens_(tokens),
      chunk_(std::min(chunk, tokens)),
      workspace_bytes_(carve(nullptr).bytes) {}

HeadTemplate::Work HeadTemplate::carve(std::byte* workspace) const {
  Carver carver(workspace);
  Work w{};
  w.normed = carver.view(dtype_, chunk_, hidden_);
  w.inv_rms = carver.array<float>(chunk_);
  w.logits = carver.view(dtype_, chunk_, vocab_);
  w.grad_normed = carver.view(dtype_, chunk_, hidden_);
  w.bytes = carver.bytes();
  return w;
}

void HeadTemplate::run(Ops& ops, Stream& stream, const Args& a) const {
  const Work w = carve(a.workspace);
  const View norm = vector(a.norm, dtype_, hidden_);
  const View table = matrix(a.table, dtype_, vocab_, hidden_);
  const bool backward = !a.grad.empty();
  for (int64_t begin = 0; begin < tokens_; begin += chunk_) {
    const int64_t count = std::min(chunk_, tokens_ - begin);
    const View x = a.x.slice_rows(begin, count);
    const View normed = w.normed.slice_rows(0, count), logits = w.logits.slice_rows(0, count);
    const View grad_normed = w.grad_normed.slice_rows(0, count);
    ops.rmsnorm_forward(stream, {.x = x, .weight = norm, .eps = eps_, .out = normed, .inv_rms = w.inv_rms});
    ops.linear_forward(stream, {.x = normed, .weight = table, .bias = {}, .residual = {}, .out = logits});
    ops.cross_entropy(stream, {.logits = logits,
                               .labels = a.micro_batch.labels + begin,
                               .scale = a.scale,
                               .loss = a.loss + begin,
                               .correct = a.correct + begin,
                               .backward = backward});
    if (!backward) continue;
    const bool accumulate = a.accumulate || begin > 0;
    if (a.table_grad) {
      ops.linear_backward_weight(stream, {.grad_out = logits,
                                          .x = normed,
                                          .grad_weight = matrix(a.table_grad, DType::f32, vocab_, hidden_),
                                          .grad_bias = {},
                                          .accumulate = accumulate});
    }
    if (!a.grad_is_used && !a.norm_grad) continue;
    ops.linear_backward_input(stream, {.grad_out = logits, .weight = table, .grad_x = grad_normed});
    ops.rmsnorm_backward(stream, {.x = x,
                                  .weight = norm,
                                  .inv_rms = w.inv_rms,
                                  .grad_out = grad_normed,
                                  .residual = {},
                                  .grad_x = a.grad.slice_rows(begin, count),
                                  .grad_weight = a.norm_grad ? vector(a.norm_grad, DType::f32, hidden_) : View{},
                                  .accumulate = accumulate});
  }
}

int64_t default_head_chunk(const ModelConfig& config, DType dtype, int64_t tokens, int64_t bytes) {
  const int64_t one = HeadTemplate(config, dtype, 128, 128).workspace_bytes() / 128 + 1;
  const int64_t fits = std::max<int64_t>(std::max(bytes, 256 * kMiB) / one / 128 * 128, 128);
  return std::min(tokens, round_up(ceil_div(tokens, ceil_div(tokens, fits)), 128));
}

}  // namespace megatrain

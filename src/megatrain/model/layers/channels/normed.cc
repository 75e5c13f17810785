#include "megatrain/model/layers/channels/normed.h"

#include <utility>

#include "megatrain/base/error.h"

namespace megatrain {

struct Normed::Work final : Channel::Work {
  std::unique_ptr<Channel::Work> inner;
  Chunked normed;         // (H) before(h)
  Chunked inv_rms;        // (1) fp32
  Chunked made;           // (H) the inner channel's output
  Chunked after_inv_rms;  // (1) fp32
  View grad_made;         // (C, H)
  View grad_normed;       // (C, H)
};

Normed::Normed(std::unique_ptr<const Channel> inner, const Norm& before, const Norm& after, DType dtype)
    : inner_(std::move(inner)), before_(before), after_(after), dtype_(dtype) {
  ensure(before_.exists() && after_.exists(), "a channel with norms of its own has both");
  ensure(inner_->own_records() < 2, "it runs in one part");
}

std::unique_ptr<Channel::Work> Normed::carve(const Space& space) const {
  const int64_t everything = last_level() + 1, width = before_.width();
  auto w = std::make_unique<Work>();
  w->inner = inner_->carve(space);
  w->normed = space.chunked(everything, dtype_, width);
  w->inv_rms = space.chunked(everything, DType::f32, 1);
  w->made = space.chunked(last_level(), dtype_, width);
  w->after_inv_rms = space.chunked(everything, DType::f32, 1);
  w->grad_made = space.work.view(dtype_, space.chunk, width);
  w->grad_normed = space.work.view(dtype_, space.chunk, width);
  return w;
}

Channel::Call Normed::inner_call(const Call& call, const View& stream, const View& grad_stream) const {
  return {.work = *static_cast<const Work&>(call.work).inner,
          .range = call.range,
          .keep = call.keep,
          .micro_batch = call.micro_batch,
          .own = call.own,
          .router_counts = call.router_counts,
          .router = call.router,
          .buffers = call.buffers,
          .stream = stream,
          .grad_stream = grad_stream};
}

void Normed::forward(const Binding& at, const Call& call, const View& x, const View& residual, const View& y,
                     bool repeated) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View normed = w.normed.at(call.range), made = w.made.at(call.range);
  if (!repeated || reads_input_again(call.keep)) before_.forward(at, x, normed, w.inv_rms.at(call.range).as<float>());
  inner_->forward(at, inner_call(call, x), normed, {}, made, repeated);
  after_.forward(at, made, y, w.after_inv_rms.at(call.range).as<float>(), residual);
}

void Normed::recompute(const Binding& at, const Call& call, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View normed = w.normed.at(call.range);
  if (call.keep <= last_level()) before_.forward(at, x, normed, w.inv_rms.at(call.range).as<float>());
  inner_->recompute(at, inner_call(call, x), normed);
}

// After recompute(): the inner channel's output, unless it was kept.
void Normed::remake(const Binding& at, const Call& call, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  if (call.keep < last_level())
    inner_->recompute_output(at, inner_call(call, x), w.normed.at(call.range), {}, w.made.at(call.range));
}

void Normed::recompute_output(const Binding& at, const Call& call, const View& x, const View& residual,
                              const View& y) const {
  const Work& w = static_cast<const Work&>(call.work);
  remake(at, call, x);
  after_.forward(at, w.made.at(call.range), y, w.after_inv_rms.at(call.range).as<float>(), residual);
}

void Normed::backward(const Binding& at, const Call& call, const View& x, const View& grad_y, const View& grad_x,
                      bool output_made, bool add) const {
  const Work& w = static_cast<const Work&>(call.work);
  ensure(add, "the gradient of the residual stream is already there");
  const View made = w.made.at(call.range), normed = w.normed.at(call.range);
  const View grad_made = w.grad_made.slice_rows(0, call.range.count),
             grad_normed = w.grad_normed.slice_rows(0, call.range.count);
  float* after_inv_rms = w.after_inv_rms.at(call.range).as<float>();
  if (!output_made) {
    remake(at, call, x);
    if (call.keep <= last_level()) after_.forward(at, made, grad_made, after_inv_rms);
  }
  after_.backward(at, {.x = made, .inv_rms = after_inv_rms, .grad_out = grad_y, .grad_x = grad_made});
  inner_->backward(at, inner_call(call, x, grad_x), normed, grad_made, grad_normed, call.keep < last_level(), false);
  before_.backward(at, {.x = x,
                        .inv_rms = w.inv_rms.at(call.range).as<float>(),
                        .grad_out = grad_normed,
                        .residual = grad_x,
                        .grad_x = grad_x});
}

std::unique_ptr<Channel::Work> Normed::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  w->inner = inner_->carve_decode(carver, tokens);
  w->normed.view = carver.view(dtype_, tokens, before_.width());
  w->made.view = carver.view(dtype_, tokens, before_.width());
  w->inv_rms.view = w->after_inv_rms.view = carver.view(DType::f32, tokens, 1);
  return w;
}

void Normed::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  before_.forward(at, a.x, w.normed.view, w.inv_rms.view.as<float>());
  Decode inner{.work = *w.inner,
               .x = w.normed.view,
               .stream = a.x,
               .residual = {},
               .y = w.made.view,
               .buffers = a.buffers,
               .own = a.own,
               .adapters = a.adapters,
               .fetch = a.fetch};
  inner_->decode(at, inner);
  after_.forward(at, w.made.view, a.y, w.after_inv_rms.view.as<float>(), a.residual);
}

}  // namespace megatrain

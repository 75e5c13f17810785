// A second kind of mixer: a gated linear recurrence after a causal convolution over three tokens. It has W independent
// channels, which restart with every document:
//
//   v, a, g = in(x)                                          (T, W) each
//   c_t = w_0 v_t + w_1 v_{t-1} + w_2 v_{t-2}                 w: (W, 3)
//   f_t = sigmoid(a_t + decay)                               decay: (W)
//   s_t = f_t s_{t-1} + (1 - f_t) c_t                         fp32
//   y_t = residual + out(s_t sigmoid(g_t) dropped_t)
//
// w and decay may have a record of their own, in fp32. Dropout uses a step's random numbers.
//
// States are kept before every `every`-th token; backward recomputes those in between. Generation caches s, v_{t-1} and
// v_{t-2} of each sequence. The loops run only on CPU streams; elsewhere they are skipped, as for notes.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/base/math.h"
#include "megatrain/base/rng.h"
#include "megatrain/device/device.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/mixer.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain::toy {

struct RecurrentOperand {
  enum : int { in = BlockOperand::first_free, conv, decay, out };
};

// The tensors of one such mixer and of the norm before it.
inline std::vector<TensorSpec> recurrent_tensors(const std::string& name, int64_t hidden, int64_t width) {
  using At = RecurrentOperand;
  return {{.name = name + ".norm.weight",
           .rows = 1,
           .cols = hidden,
           .role = TensorRole::norm,
           .operand = BlockOperand::input_norm},
          {.name = name + ".in.weight", .rows = 3 * width, .cols = hidden, .operand = At::in},
          {.name = name + ".conv.weight", .rows = width, .cols = 3, .role = TensorRole::filter, .operand = At::conv},
          {.name = name + ".decay", .rows = 1, .cols = width, .role = TensorRole::bias, .operand = At::decay},
          {.name = name + ".out.weight", .rows = hidden, .cols = width, .operand = At::out}};
}

// Moves the tensors that stay fp32 out of a layer's list, into one for a record of their own.
inline std::vector<TensorSpec> take_fp32_tensors(std::vector<TensorSpec>& tensors) {
  std::vector<TensorSpec> own;
  const auto moved = [&](const TensorSpec& tensor) {
    const bool takes = tensor.operand == RecurrentOperand::conv || tensor.operand == RecurrentOperand::decay;
    if (takes) own.push_back(tensor);
    return takes;
  };
  std::erase_if(tensors, moved);
  for (TensorSpec& tensor : own) tensor.dtype = DType::f32;
  return own;
}

class Recurrent final : public Mixer {
 public:
  struct Shape {
    DType dtype;
    int64_t tokens;
    int64_t every;
    double dropout = 0;
    uint64_t layer = 0;  // distinguishes the random numbers of layers
  };
  Recurrent(const Shape& shape, const LinearTensors& from, const LayerLayout* own = nullptr)
      : dtype_(shape.dtype),
        tokens_(shape.tokens),
        every_(shape.every),
        dropout_(shape.dropout),
        layer_(shape.layer),
        has_own_(own != nullptr),
        in_(from, RecurrentOperand::in),
        out_(from, RecurrentOperand::out),
        conv_(find_operand(own ? *own : from.record, RecurrentOperand::conv)),
        decay_(find_operand(own ? *own : from.record, RecurrentOperand::decay)) {}

  bool has_own_record() const override { return has_own_; }

  // In addition to nothing and everything: the output of mix().
  std::vector<Level> keep_levels() const override {
    return {{.name = "states", .spared = "the recurrence", .mixed = true, .may_wait = true}};
  }

  std::unique_ptr<Mixer::Work> carve(const Space& space) const override {
    enum : int64_t { states = 1, everything };  // keep_levels()
    auto w = std::make_unique<Work>();
    w->u = space.at(everything).view(dtype_, space.tokens, 3 * width());
    w->mixed = space.at(states).view(dtype_, space.tokens, width());
    w->states = space.at(states).view(DType::f32, ceil_div(space.tokens, every_), width());
    w->grad_mixed = space.work.view(dtype_, space.tokens, width());
    w->grad_u = space.work.view(dtype_, space.tokens, 3 * width());
    return w;
  }

  void in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const override {
    in_.forward(at, x, {}, of(call.work).u.slice_rows(range.begin, range.count));
  }

  void mix(const Binding& at, const Call& call) const override {
    const Work w = of(call.work);
    run(at, [this, w, weights = weights_of(call.own), positions = call.micro_batch.positions,
             random = call.micro_batch.random, every = every_] {
      for (int64_t c = 0; c < w.mixed.cols; ++c) {
        float state = 0;
        for (int64_t t = 0; t < w.mixed.rows; ++t) {
          if (positions[t] == 0) state = 0;
          if (t % every == 0) w.states.as<float>()[t / every * w.states.cols + c] = state;
          const Token token = weights.at(w.u, t, c, positions[t]);
          state = token.next(state);
          set(w.mixed, t, c, state * token.gate * dropped(random, t, c));
        }
      }
    });
  }

  void out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
           const View& y) const override {
    out_.forward(at, of(call.work).mixed.slice_rows(range.begin, range.count), residual, y);
  }

  void out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const override {
    const Work& w = of(call.work);
    out_.backward_weight(at, grad_y, w.mixed.slice_rows(range.begin, range.count));
    out_.backward_input(at, grad_y, w.grad_mixed.slice_rows(range.begin, range.count));
  }

  void mix_backward(const Binding& at, const Call& call) const override {
    const Work w = of(call.work);
    run(at, [this, w, weights = weights_of(call.own), micro_batch = call.micro_batch,
             grad_conv = conv_.gradient(call.own.gradients), grad_decay = decay_.gradient(call.own.gradients),
             accumulate = at.accumulate] {
      for (int64_t c = 0; c < w.mixed.cols; ++c) {
        const Sums sums = backward_of(w, weights, micro_batch, c);
        const auto add = [&](const View& to, int64_t index, float sum) {
          if (!to.empty()) to.as<float>()[index] = accumulate ? to.as<float>()[index] + sum : sum;
        };
        for (int64_t j = 0; j < 3; ++j) add(grad_conv, 3 * c + j, sums.conv[j]);
        add(grad_decay, c, sums.decay);
      }
    });
  }

  void in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x, const View& grad_x,
                   bool add) const override {
    const View grad_u = of(call.work).grad_u.slice_rows(range.begin, range.count);
    in_.backward_weight(at, grad_u, x);
    in_.backward_input(at, grad_u, grad_x, add);
  }

  int64_t cache_bytes(int64_t sequences, int64_t) const override {
    return round_up(sequences * 3 * width() * static_cast<int64_t>(sizeof(float)), 256);
  }
  bool cache_rewinds() const override { return false; }

  std::unique_ptr<Mixer::Work> carve_decode(Carver& carver, int64_t tokens) const override {
    auto w = std::make_unique<Work>();
    w->u = carver.view(dtype_, tokens, 3 * width());
    w->mixed = carver.view(dtype_, tokens, width());
    return w;
  }

  void decode(const Binding& at, const Decode& a) const override {
    const Work w = of(a.work);
    in_.forward(at, a.x, {}, w.u);
    run(at, [w, weights = weights_of(a.own), tokens = a.tokens, cache = reinterpret_cast<float*>(a.cache.bytes)] {
      const int64_t width = w.mixed.cols;
      for (int64_t t = 0; t < tokens.tokens; ++t) {
        for (int64_t c = 0; c < width; ++c) {
          float* remembered =
              cache + (tokens.sequences[t] * width + c) * 3;  // s, v of the previous token, and of the one before
          if (tokens.positions[t] == 0) remembered[0] = remembered[1] = remembered[2] = 0;
          const float v = get(w.u, t, c);
          const Token token = weights.of(w.u, t, c, v, remembered[1], remembered[2]);
          remembered[0] = token.next(remembered[0]);
          remembered[2] = remembered[1];
          remembered[1] = v;
          set(w.mixed, t, c, remembered[0] * token.gate);
        }
      }
    });
    out_.forward(at, w.mixed, a.residual, a.y);
  }

 private:
  struct Work final : Mixer::Work {
    View u;           // (T, 3W) v, a, g
    View mixed;       // (T, W)
    View states;      // (T / every, W) fp32
    View grad_mixed;  // (T, W)
    View grad_u;      // (T, 3W)
  };

  static float get(const View& view, int64_t row, int64_t col) {
    const int64_t at = row * view.row_stride + col;
    return view.dtype == DType::bf16 ? to_float(view.as<bf16>()[at]) : view.as<float>()[at];
  }
  static void set(const View& view, int64_t row, int64_t col, float value) {
    const int64_t at = row * view.row_stride + col;
    if (view.dtype == DType::bf16)
      view.as<bf16>()[at] = to_bf16(value);
    else
      view.as<float>()[at] = value;
  }
  static float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

  // One channel of one token.
  struct Token {
    float conv;  // c
    float keep;  // f
    float gate;  // sigmoid(g)
    float next(float state) const { return keep * state + (1 - keep) * conv; }
  };

  struct Weights {
    View conv;   // (W, 3)
    View decay;  // (W)
    Token of(const View& u, int64_t t, int64_t c, float v, float v1, float v2) const {
      const int64_t width = decay.cols;
      return {.conv = get(conv, c, 0) * v + get(conv, c, 1) * v1 + get(conv, c, 2) * v2,
              .keep = sigmoid(get(u, t, width + c) + get(decay, 0, c)),
              .gate = sigmoid(get(u, t, 2 * width + c))};
    }
    Token at(const View& u, int64_t t, int64_t c, int32_t position) const {
      return of(u, t, c, get(u, t, c), position > 0 ? get(u, t - 1, c) : 0, position > 1 ? get(u, t - 2, c) : 0);
    }
  };

  struct Sums {
    float conv[3] = {};
    float decay = 0;
  };
  // Computes one channel of grad_u, and the sums for the parameters' gradients, from grad_mixed.
  Sums backward_of(const Work& w, const Weights& weights, const MicroBatchView& micro_batch, int64_t c) const {
    const int64_t width = w.mixed.cols, tokens = w.mixed.rows, every = every_;
    const int32_t* positions = micro_batch.positions;
    std::vector<float> states(static_cast<size_t>(every));  // after each token of a chunk
    Sums sums;
    float grad_state = 0;        // of s_t, from later tokens
    float conv1 = 0, conv2 = 0;  // gradients of c_{t+1} and c_{t+2}, which read v_t
    for (int64_t chunk = w.states.rows - 1; chunk >= 0; --chunk) {
      const int64_t begin = chunk * every, end = std::min(begin + every, tokens);
      const float first = w.states.as<float>()[chunk * width + c];
      const auto before = [&](int64_t t) {
        return positions[t] == 0 ? 0.0f : t == begin ? first : states[static_cast<size_t>(t - 1 - begin)];
      };
      for (int64_t t = begin; t < end; ++t)
        states[static_cast<size_t>(t - begin)] = weights.at(w.u, t, c, positions[t]).next(before(t));
      for (int64_t t = end - 1; t >= begin; --t) {
        const Token token = weights.at(w.u, t, c, positions[t]);
        const float grad = get(w.grad_mixed, t, c) * dropped(micro_batch.random, t, c),
                    state = states[static_cast<size_t>(t - begin)];
        grad_state += grad * token.gate;
        const float grad_keep = grad_state * (before(t) - token.conv) * token.keep * (1 - token.keep);
        const float grad_conv = grad_state * (1 - token.keep);
        for (int64_t j = 0; j < 3 && j <= positions[t]; ++j) sums.conv[j] += grad_conv * get(w.u, t - j, c);
        sums.decay += grad_keep;
        set(w.grad_u, t, c,
            get(weights.conv, c, 0) * grad_conv + get(weights.conv, c, 1) * conv1 + get(weights.conv, c, 2) * conv2);
        set(w.grad_u, t, width + c, grad_keep);
        set(w.grad_u, t, 2 * width + c, grad * state * token.gate * (1 - token.gate));
        conv2 = t + 1 < tokens && positions[t + 1] > 1 ? conv1 : 0;
        conv1 = positions[t] > 0 ? grad_conv : 0;
        grad_state = positions[t] > 0 ? grad_state * token.keep : 0;
      }
    }
    return sums;
  }
  // 0, or the factor that compensates for the dropped ones.
  float dropped(const std::optional<StepRandom>& random, int64_t t, int64_t c) const {
    if (!random || dropout_ == 0) return 1;
    const uint64_t purpose = layer_ << 32 | static_cast<uint64_t>(random->step);
    const uint64_t index = static_cast<uint64_t>((random->micro_batch * tokens_ + t) * width() + c);
    return random_uniform(random->seed, purpose, index) < dropout_ ? 0 : static_cast<float>(1 / (1 - dropout_));
  }
  static const Work& of(const Mixer::Work& work) { return static_cast<const Work&>(work); }
  Weights weights_of(const Binding& at) const { return {conv_.weight(at.weights), decay_.weight(at.weights)}; }
  int64_t width() const { return out_.in_width(); }
  static void run(const Binding& at, std::function<void()> work) {
    if (auto* host = dynamic_cast<HostStream*>(&at.stream)) host->run(std::move(work));
  }

  DType dtype_;
  int64_t tokens_, every_;
  double dropout_;
  uint64_t layer_;
  bool has_own_;
  Linear in_, out_;
  WeightOperand conv_, decay_;
};

}  // namespace megatrain::toy

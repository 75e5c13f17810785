#include "megatrain/ops/elementwise.h"

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/expert_rows.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

// The sigmoid's argument z, and gate times the slope of z.
struct Silu {
  static constexpr bool kGated = true;
  static float argument(float gate) { return gate; }
  static float gate_slope(float gate) { return gate; }
};
struct GeluTanh {
  static constexpr bool kGated = true;
  static float argument(float gate) { return gate * (kGeluLinear + kGeluCubic * (gate * gate)); }
  static float gate_slope(float gate) { return gate * (kGeluLinear + 3.0f * kGeluCubic * (gate * gate)); }
};
struct GeluSigmoid {
  static constexpr bool kGated = true;
  static float argument(float gate) { return kGeluSigmoid * gate; }
  static float gate_slope(float gate) { return kGeluSigmoid * gate; }
};

// Has no gate, so no up either. A NaN stays NaN.
struct ReluSquared {
  static constexpr bool kGated = false;
};
float positive(float x) { return x < 0 ? 0.0f : x; }

// How gate and up are changed before the activation, and their gradients after it.
struct AsTheyAre {
  float gate(float x) const { return x; }
  float up(float x) const { return x; }
  float grad_gate(float /*gate*/, float grad) const { return grad; }
  float grad_up(float /*up*/, float grad) const { return grad; }
};
// A NaN stays NaN. Where a value is clamped, its gradient is zero.
struct Limited {
  explicit Limited(const Gate& gate)
      : limit(gate.limit > 0 ? gate.limit : std::numeric_limits<float>::infinity()), up_offset(gate.up_offset) {}

  float gate(float x) const { return x > limit ? limit : x; }
  float up(float x) const { return (x > limit ? limit : x < -limit ? -limit : x) + up_offset; }
  float grad_gate(float gate, float grad) const { return gate > limit ? 0.0f : grad; }
  float grad_up(float up, float grad) const { return up > limit || up < -limit ? 0.0f : grad; }

  float limit;
  float up_offset;
};

// Calls body(activation, limits) with objects of the types above.
template <class Body>
void with_gate(const Gate& gate, const Body& body) {
  const auto with_limits = [&](auto activation) {
    if (gate.limit == 0 && gate.up_offset == 0) {
      body(activation, AsTheyAre{});
    } else {
      body(activation, Limited(gate));
    }
  };
  switch (gate.activation) {
    case Activation::silu: return with_limits(Silu{});
    case Activation::gelu_tanh: return with_limits(GeluTanh{});
    case Activation::gelu_sigmoid: return with_limits(GeluSigmoid{});
    case Activation::relu_squared: return body(ReluSquared{}, AsTheyAre{});
  }
}

template <class Act, class Limits>
float activated(Act, const Limits& limits, float raw_gate, float raw_up) {
  if constexpr (Act::kGated) {
    const float gate = limits.gate(raw_gate);
    return gate / (1.0f + exp_f32(-Act::argument(gate))) * limits.up(raw_up);
  } else {
    return positive(raw_gate) * positive(raw_gate);
  }
}

struct GatedGradient {
  float out, gate, up;
};

// With s = sigmoid(z(gate)): d(gate s)/d(gate) = s (1 + gate z' (1 - s))
template <class Act, class Limits>
GatedGradient gradient(Act, const Limits& limits, float raw_gate, float raw_up, float grad) {
  if constexpr (!Act::kGated) {
    const float x = positive(raw_gate);
    return {.out = x * x, .gate = 2.0f * x * grad, .up = 0};
  } else {
    const float gate = limits.gate(raw_gate), up = limits.up(raw_up);
    const float e = exp_f32(-Act::argument(gate));
    const float s = 1.0f / (1.0f + e);
    return {.out = gate / (1.0f + e) * up,
            .gate = limits.grad_gate(raw_gate, grad * up * s * (1.0f + Act::gate_slope(gate) * (e * s))),
            .up = limits.grad_up(raw_up, grad * (gate * s))};
  }
}

// The chunk of up that belongs to one of gate, which stands for it without a gate.
template <class Act>
const float* read_up(Act, const View& gate_up, int64_t row, int64_t begin, int64_t count, const float* gate,
                     Chunk& to) {
  if constexpr (!Act::kGated) return gate;
  return read(gate_up, row, gate_up.cols / 2 + begin, count, to.data());
}

// Writes the gradients of a chunk.
template <class Act>
void write_gradients(Act, const Chunk& grad_gate, const Chunk& grad_up, const View& to, int64_t row, int64_t begin,
                     int64_t count) {
  narrow(grad_gate.data(), to, row, begin, count);
  if constexpr (Act::kGated) narrow(grad_up.data(), to, row, to.cols / 2 + begin, count);
}

void check_widths(const View& gate_up, const View& out, Activation activation) {
  ensure(gate_up.cols == parts_of(activation) * out.cols, "a row of a gated activation is gate then up");
}

float row_gate_at(const View& row_gate, int64_t row) {
  float buffer = 0;
  return *read(row_gate, row, 0, 1, &buffer);
}

// What multiplies a row: 1 without row gates. Multiplying by it then changes no bit.
float row_factor(const View& row_gate, int64_t row) {
  return row_gate.empty() ? 1.0f : sigmoid(row_gate_at(row_gate, row));
}

void check_row_gate(const View& row_gate, const View& of) {
  ensure(row_gate.empty() || (row_gate.dtype == of.dtype && row_gate.rows == of.rows && row_gate.cols == 1),
         "a row gate is one number a row");
}

void forward(const Context& context, const View& gate_up, const View& row_gate, const View& result, const Gate& how) {
  with_gate(how, [&](auto act, const auto& limits) {
    const int64_t size = result.cols;
    for_rows(context.team, result.rows, size, [&](int64_t row) {
      const float factor = row_factor(row_gate, row);
      for_chunks(size, [&](int64_t begin, int64_t count) {
        Chunk gate_buffer, up_buffer, out;
        const float* gates = read(gate_up, row, begin, count, gate_buffer.data());
        const float* ups = read_up(act, gate_up, row, begin, count, gates, up_buffer);
        for (int64_t i = 0; i < count; ++i) out[i] = activated(act, limits, gates[i], ups[i]) * factor;
        narrow(out.data(), result, row, begin, count);
      });
    });
  });
}

}  // namespace

void gated_forward(const Context& context, const GatedForward& args) {
  check_dtype(args.gate_up);
  check_dtype(args.out);
  check_widths(args.gate_up, args.out, args.activation);
  check_row_gate(args.row_gate, args.out);
  forward(context, args.gate_up, args.row_gate, args.out, {.activation = args.activation});
}

void gated_backward(const Context& context, const GatedBackward& args) {
  check_dtype(args.gate_up);
  check_dtype(args.grad_out);
  check_dtype(args.grad_gate_up);
  check_widths(args.gate_up, args.grad_out, args.activation);
  check_widths(args.grad_gate_up, args.grad_out, args.activation);
  check_row_gate(args.row_gate, args.grad_out);
  ensure(args.row_gate.empty() == args.grad_row_gate.empty(), "a row gate has a gradient");
  with_gate({.activation = args.activation}, [&](auto act, const auto& limits) {
    const int64_t size = args.grad_out.cols;
    for_rows(context.team, args.grad_out.rows, size, [&](int64_t row) {
      const float factor = row_factor(args.row_gate, row);
      double grad_factor = 0;
      for_chunks(size, [&](int64_t begin, int64_t count) {
        Chunk gate_buffer, up_buffer, grad_buffer, grad_gate, grad_up, out;
        const float* gate = read(args.gate_up, row, begin, count, gate_buffer.data());
        const float* up = read_up(act, args.gate_up, row, begin, count, gate, up_buffer);
        const float* grad = read(args.grad_out, row, begin, count, grad_buffer.data());
        for (int64_t i = 0; i < count; ++i) {
          const GatedGradient g = gradient(act, limits, gate[i], up[i], factor * grad[i]);
          grad_gate[i] = g.gate;
          grad_up[i] = g.up;
          out[i] = g.out;
        }
        if (!args.row_gate.empty()) {
          grad_factor += sum_of(count, [&](int64_t i) { return static_cast<double>(grad[i]) * out[i]; });
          for (int64_t i = 0; i < count; ++i) out[i] *= factor;
        }
        if (!args.out.empty()) narrow(out.data(), args.out, row, begin, count);
        write_gradients(act, grad_gate, grad_up, args.grad_gate_up, row, begin, count);
      });
      if (args.row_gate.empty()) return;
      const float slope = factor * sigmoid(-row_gate_at(args.row_gate, row));
      const float grad = static_cast<float>(grad_factor) * slope;
      narrow(&grad, args.grad_row_gate, row, 0, 1);
    });
  });
}

void experts_gated(const Context& context, const ExpertsGated& args) {
  check_dtype(args.gate_up);
  check_dtype(args.out);
  check_widths(args.gate_up, args.out, args.gate.activation);
  check(args.rows);
  const int64_t rows = count_rows(args.rows);
  forward(context, args.gate_up.slice_rows(0, rows), {}, args.out.slice_rows(0, rows), args.gate);
}

void experts_gated_backward(const Context& context, const ExpertsGatedBackward& args) {
  check_dtype(args.gate_up);
  check_dtype(args.grad_act);
  check_widths(args.gate_up, args.grad_act, args.gate.activation);
  ensure(args.bias.empty() || args.bias.first.cols == args.grad_y.cols, "a bias is as wide as the token's gradient");
  check(args.rows);
  const int64_t size = args.grad_act.cols;
  const int32_t* begin_of = args.rows.begin;
  with_gate(args.gate, [&](auto act, const auto& limits) {
    for_rows(context.team, count_rows(args.rows), size, [&](int64_t row) {
      const int64_t place = begin_of[0] + row;
      const int32_t pair = args.pair_of_row[place];
      const float weight = args.weights[pair];
      double grad_weight = 0;
      for_chunks(size, [&](int64_t begin, int64_t count) {
        Chunk gate_buffer, up_buffer, grad_buffer, grad_gate, grad_up, out;
        const float* gate = read(args.gate_up, row, begin, count, gate_buffer.data());
        const float* up = read_up(act, args.gate_up, row, begin, count, gate, up_buffer);
        const float* grad = read(args.grad_act, row, begin, count, grad_buffer.data());
        for (int64_t i = 0; i < count; ++i) {
          const GatedGradient g = gradient(act, limits, gate[i], up[i], weight * grad[i]);
          grad_gate[i] = g.gate;
          grad_up[i] = g.up;
          out[i] = g.out;
        }
        grad_weight += sum_of(count, [&](int64_t i) { return static_cast<double>(grad[i]) * out[i]; });
        for (int64_t i = 0; i < count; ++i) out[i] *= weight;
        narrow(out.data(), args.grad_act, row, begin, count);
        write_gradients(act, grad_gate, grad_up, args.gate_up, row, begin, count);
      });
      if (!args.bias.empty()) {
        const int64_t expert = std::upper_bound(begin_of, begin_of + args.rows.experts, place) - begin_of - 1;
        const View bias_row = weights_of(args.bias, expert);
        for_chunks(args.grad_y.cols, [&](int64_t begin, int64_t count) {
          Chunk grad_buffer, bias_buffer, weighted;
          const float* grad = read(args.grad_y, row, begin, count, grad_buffer.data());
          const float* bias = read(bias_row, 0, begin, count, bias_buffer.data());
          grad_weight += sum_of(count, [&](int64_t i) { return static_cast<double>(grad[i]) * bias[i]; });
          for (int64_t i = 0; i < count; ++i) weighted[i] = weight * grad[i];
          narrow(weighted.data(), args.grad_y, row, begin, count);
        });
      }
      args.grad_weights[pair] = static_cast<float>(grad_weight);
    });
  });
}

}  // namespace megatrain::cpu

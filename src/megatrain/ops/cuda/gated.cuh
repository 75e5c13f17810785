// Activations of one element. Gated ones are gate * sigmoid(z) * up; Act provides z, and gate times the slope of z.
#pragma once

#include "megatrain/device/cuda/numeric.cuh"
#include "megatrain/ops/elementwise.h"

namespace megatrain {

struct Silu {
  static constexpr bool kGated = true;
  static __device__ float argument(float gate) { return gate; }
  static __device__ float gate_slope(float gate) { return gate; }
};
struct GeluTanh {
  static constexpr bool kGated = true;
  static __device__ float argument(float gate) { return gate * (kGeluLinear + kGeluCubic * (gate * gate)); }
  static __device__ float gate_slope(float gate) { return gate * (kGeluLinear + 3.0f * kGeluCubic * (gate * gate)); }
};
struct GeluSigmoid {
  static constexpr bool kGated = true;
  static __device__ float argument(float gate) { return kGeluSigmoid * gate; }
  static __device__ float gate_slope(float gate) { return kGeluSigmoid * gate; }
};

// Has no gate, so no up either. A NaN stays NaN.
struct ReluSquared {
  static constexpr bool kGated = false;
};
__device__ inline float positive(float x) { return x < 0 ? 0.0f : x; }

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <class Act>
__device__ float gated(float gate, float up) {
  if constexpr (Act::kGated) {
    return gate / (1.0f + expf(-Act::argument(gate))) * up;
  } else {
    return positive(gate) * positive(gate);
  }
}

// Gradients of gated(gate, up) with respect to gate and up, given that of the result.
struct GatedGradient {
  float gate, up;
};
template <class Act>
__device__ GatedGradient gated_gradient(float gate, float up, float grad) {
  if constexpr (Act::kGated) {
    const float sigmoid = 1.0f / (1.0f + expf(-Act::argument(gate)));
    const float active = gate * sigmoid;
    return {grad * up * (sigmoid * (1.0f + Act::gate_slope(gate) * (1.0f - sigmoid))), grad * active};
  } else {
    return {2.0f * positive(gate) * grad, 0.0f};
  }
}

// Elements of `up`, which lie `cols` behind those of `gate`; without a gate, zeros.
template <class Act, class T, int kVec>
__device__ void load_up(const T* gate, int64_t cols, float (&up)[kVec]) {
  if constexpr (Act::kGated) {
    load<T, kVec>(gate + cols, up);
  } else {
#pragma unroll
    for (int j = 0; j < kVec; ++j) up[j] = 0;
  }
}
template <class Act, class T, int kVec>
__device__ void store_up(T* gate, int64_t cols, const float (&up)[kVec]) {
  if constexpr (Act::kGated) store<T, kVec>(gate + cols, up);
}

// Calls body with the activation's type.
template <class Body>
void visit_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::silu: return body.template operator()<Silu>();
    case Activation::gelu_tanh: return body.template operator()<GeluTanh>();
    case Activation::gelu_sigmoid: return body.template operator()<GeluSigmoid>();
    case Activation::relu_squared: return body.template operator()<ReluSquared>();
  }
}

}  // namespace megatrain

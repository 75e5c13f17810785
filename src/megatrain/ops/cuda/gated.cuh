// Gated activations of one element: gate * sigmoid(z) * up. Act provides z, and gate times the slope of z.
#pragma once

#include "megatrain/device/cuda/numeric.cuh"
#include "megatrain/ops/elementwise.h"

namespace megatrain {

struct Silu {
  static __device__ float argument(float gate) { return gate; }
  static __device__ float gate_slope(float gate) { return gate; }
};
struct GeluTanh {
  static __device__ float argument(float gate) { return gate * (kGeluLinear + kGeluCubic * (gate * gate)); }
  static __device__ float gate_slope(float gate) { return gate * (kGeluLinear + 3.0f * kGeluCubic * (gate * gate)); }
};
struct GeluSigmoid {
  static __device__ float argument(float gate) { return kGeluSigmoid * gate; }
  static __device__ float gate_slope(float gate) { return kGeluSigmoid * gate; }
};

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <class Act>
__device__ float gated(float gate, float up) {
  return gate / (1.0f + expf(-Act::argument(gate))) * up;
}

// Gradients of gated(gate, up) with respect to gate and up, given that of the result.
struct GatedGradient {
  float gate, up;
};
template <class Act>
__device__ GatedGradient gated_gradient(float gate, float up, float grad) {
  const float sigmoid = 1.0f / (1.0f + expf(-Act::argument(gate)));
  const float active = gate * sigmoid;
  return {grad * up * (sigmoid * (1.0f + Act::gate_slope(gate) * (1.0f - sigmoid))), grad * active};
}

// Calls body with the activation's type.
template <class Body>
void visit_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::silu: return body.template operator()<Silu>();
    case Activation::gelu_tanh: return body.template operator()<GeluTanh>();
    case Activation::gelu_sigmoid: return body.template operator()<GeluSigmoid>();
  }
}

}  // namespace megatrain

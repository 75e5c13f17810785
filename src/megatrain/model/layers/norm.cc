#include "megatrain/model/layers/norm.h"

namespace megatrain {

NormShape norm_shape(const ModelConfig& config) {
  return {.eps = static_cast<float>(config.norm_eps),
          .offset = static_cast<float>(config.norm_offset),
          .centred = config.norm_centred};
}

Norm Norm::weightless(int64_t width, NormShape shape) {
  Norm norm;
  norm.weight_.cols = width;
  norm.shape_ = {.eps = shape.eps};
  return norm;
}

Norm Norm::at_start() const {
  Norm norm = *this;
  norm.weight_.offset = 0;
  return norm;
}

void Norm::forward(const Binding& at, const View& x, const View& out, float* inv_rms, const View& residual) const {
  at.ops.rmsnorm_forward(at.stream, {.x = x,
                                     .weight = weight_.weight(at.weights),
                                     .weight_offset = shape_.offset,
                                     .eps = shape_.eps,
                                     .groups = x.cols / weight_.cols,
                                     .centred = shape_.centred,
                                     .residual = residual,
                                     .out = out,
                                     .inv_rms = inv_rms});
}

void Norm::backward(const Binding& at, const Backward& a) const {
  at.ops.rmsnorm_backward(at.stream, {.x = a.x,
                                      .weight = weight_.weight(at.weights),
                                      .weight_offset = shape_.offset,
                                      .inv_rms = a.inv_rms,
                                      .groups = a.x.cols / weight_.cols,
                                      .centred = shape_.centred,
                                      .grad_out = a.grad_out,
                                      .residual = a.residual,
                                      .grad_x = a.grad_x,
                                      .grad_weight = weight_.gradient(at.gradients),
                                      .accumulate = at.accumulate});
}

}  // namespace megatrain

#include <cudnn.h>

#include <algorithm>
#include <string>

#include "megatrain/base/error.h"
#include "megatrain/device/cuda/cuda_stream.h"
#include "megatrain/ops/cuda/attention/cudnn.h"
#include "megatrain/ops/cuda/attention/launch.h"
#include "megatrain/ops/cuda/delta/launch.h"
#include "megatrain/ops/cuda/experts_gemms.h"
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/ops/cuda/linear.h"
#include "megatrain/device/cuda/scratch.h"
#include "megatrain/ops/cuda/ssd/launch.h"
#include "megatrain/ops/delta_segments.h"
#include "megatrain/ops/ops.h"
#include "megatrain/ops/ssd_segments.h"

namespace megatrain {

namespace {

// Scratch of the ops of a gated delta net.
int64_t delta_net_bytes(const DeltaRuleShape& shape) {
  if (shape.value_heads == 0) return 0;
  const int64_t channels = 2 * shape.key_heads * shape.key_dim + shape.value_heads * shape.value_dim;
  return std::max({delta_rule_scratch_bytes(shape), short_conv_scratch_bytes(shape.tokens, channels, kMostConvTaps),
                   delta_gates_scratch_bytes(shape.tokens, shape.value_heads),
                   gated_norm_scratch_bytes(shape.tokens, shape.value_heads, shape.value_dim),
                   norm_groups_scratch_bytes(shape.tokens, shape.value_heads * shape.value_dim, shape.value_dim)});
}

// Scratch of Mamba 2's ops.
int64_t mamba2_bytes(const SsdShape& shape) {
  if (shape.heads == 0) return 0;
  const int64_t width = shape.heads * shape.head_dim, channels = width + 2 * shape.groups * shape.state_dim;
  const int64_t size = width / shape.groups;
  return std::max({ssd_scratch_bytes(shape), short_conv_scratch_bytes(shape.tokens, channels, kMostConvTaps),
                   ssd_gates_scratch_bytes(shape.tokens, shape.heads),
                   gated_norm_scratch_bytes(shape.tokens, shape.groups, size),
                   norm_groups_scratch_bytes(shape.tokens, width, size)});
}

class CudaOps final : public Ops {
 public:
  explicit CudaOps(Device& device)
      : device_(device), scratch_(device), linear_(scratch_), attention_(scratch_), experts_(scratch_) {}

  std::string library() const override {
    return device_.name() + ", cuBLASLt " + std::to_string(cublasLtGetVersion()) + ", cuDNN " +
           std::to_string(cudnnGetVersion());
  }
  AlgorithmTable tune(const std::vector<OpNote>& notes, const AlgorithmTable& known) override {
    return linear_.tune(device_, notes, known);
  }

  int64_t scratch_bytes(const OpsShape& shape) override {
    if (shape.generating) return CudaLinear::kWorkspaceBytes;
    const int64_t tokens = shape.tokens;
    int64_t bytes = std::max({CudaLinear::kWorkspaceBytes, rmsnorm_scratch_bytes(tokens, 1, shape.hidden),
                              column_sum_scratch_bytes(tokens, std::max(shape.hidden, 2 * shape.ff))});
    bytes = std::max({bytes, delta_net_bytes(shape.delta_rule), mamba2_bytes(shape.ssd),
                      short_conv_scratch_bytes(tokens, shape.conv_channels, kMostConvTaps)});
    for (const AttentionShape& attention : shape.attention) {
      const int64_t columns = (attention.heads + 2 * attention.kv_heads) * attention.head_dim;
      bytes = std::max({bytes, rmsnorm_scratch_bytes(tokens, attention.heads, attention.head_dim),
                        column_sum_scratch_bytes(tokens, columns), attention_scratch_bytes(attention)});
      if (shape.dtype == DType::bf16)
        bytes = std::max(bytes, attention_.scratch_bytes(attention, shape.max_documents, shape.longest_document));
    }
    return bytes;
  }
  void reserve(const OpsShape& shape) override { scratch_.reserve(scratch_bytes(shape)); }
  void prepare(const OpsShape& shape) override {
    if (shape.generating || shape.dtype != DType::bf16) return;
    for (const AttentionShape& attention : shape.attention)
      attention_.prepare(attention, shape.max_documents, shape.longest_document);
  }

  void embedding_forward(Stream& stream, const EmbeddingForward& args) override { launch(args, native_stream(stream)); }
  void embedding_backward(Stream& stream, const EmbeddingBackward& args) override {
    launch(args, native_stream(stream));
  }
  void move_columns(Stream& stream, const MoveColumns& args) override { launch(args, native_stream(stream)); }
  void rmsnorm_forward(Stream& stream, const RmsNormForward& args) override { launch(args, native_stream(stream)); }
  void rmsnorm_backward(Stream& stream, const RmsNormBackward& args) override {
    const int64_t bytes = rmsnorm_scratch_bytes(args.x.rows, args.groups, args.x.cols / args.groups);
    launch(args, scratch_.take(bytes, native_stream(stream)), native_stream(stream));
  }
  void rope(Stream& stream, const Rope& args) override { launch(args, native_stream(stream)); }

  void linear_forward(Stream& stream, const LinearForward& args) override {
    linear_.forward(args, native_stream(stream));
  }
  void linear_backward_input(Stream& stream, const LinearBackwardInput& args) override {
    linear_.backward_input(args, native_stream(stream));
  }
  void linear_backward_weight(Stream& stream, const LinearBackwardWeight& args) override {
    linear_.backward_weight(args, native_stream(stream));
  }

  void attention_forward(Stream& stream, const AttentionForward& args) override {
    const cudaStream_t native = native_stream(stream);
    if (takes_wide(args)) {
      launch_wide(args, native);
    } else if (args.shape.cap > 0 || !attention_.forward(args, native)) {
      return launch(args, native);
    }
    if (!args.sinks.empty()) launch_add_sinks(args, native);
  }
  void attention_backward(Stream& stream, const AttentionBackward& args) override {
    const cudaStream_t native = native_stream(stream);
    if (takes_wide(args)) {
      launch_wide(args, scratch_.take(attention_scratch_bytes(args.shape), native), native);
    } else if (args.shape.cap > 0 || !attention_.backward(args, native)) {
      launch(args, scratch_.take(attention_scratch_bytes(args.shape), native), native);
    }
    if (args.grad_sinks.empty()) return;
    launch_sink_gradient(args, scratch_.take(sink_gradient_scratch_bytes(args.shape), native), native);
  }

  void attention_cached(Stream& stream, const CachedAttention& args) override { launch(args, native_stream(stream)); }

  void short_conv_forward(Stream& stream, const ShortConvForward& args) override {
    launch(args, native_stream(stream));
  }
  void short_conv_backward(Stream& stream, const ShortConvBackward& args) override {
    const int64_t bytes = short_conv_scratch_bytes(args.x.rows, args.x.cols, args.weight.cols);
    launch(args, scratch_.take(bytes, native_stream(stream)), native_stream(stream));
  }
  void short_conv_cached(Stream& stream, const ShortConvCached& args) override { launch(args, native_stream(stream)); }
  void delta_gates_forward(Stream& stream, const DeltaGatesForward& args) override {
    launch(args, native_stream(stream));
  }
  void delta_gates_backward(Stream& stream, const DeltaGatesBackward& args) override {
    const int64_t bytes = delta_gates_scratch_bytes(args.a.rows, args.a.cols);
    launch(args, scratch_.take(bytes, native_stream(stream)), native_stream(stream));
  }
  void delta_rule_forward(Stream& stream, const DeltaRuleForward& args) override {
    const int64_t bytes = delta_rule_scratch_bytes(args.shape);
    launch(args, scratch_.take(bytes, native_stream(stream)), native_stream(stream));
  }
  void delta_rule_backward(Stream& stream, const DeltaRuleBackward& args) override {
    const int64_t bytes = delta_rule_scratch_bytes(args.shape);
    launch(args, scratch_.take(bytes, native_stream(stream)), native_stream(stream));
  }
  void delta_rule_cached(Stream& stream, const DeltaRuleCached& args) override { launch(args, native_stream(stream)); }
  void ssd_gates_forward(Stream& stream, const SsdGatesForward& args) override { launch(args, native_stream(stream)); }
  void ssd_gates_backward(Stream& stream, const SsdGatesBackward& args) override {
    const int64_t bytes = ssd_gates_scratch_bytes(args.dt.rows, args.dt.cols);
    launch(args, scratch_.take(bytes, native_stream(stream)), native_stream(stream));
  }
  void ssd_forward(Stream& stream, const SsdForward& args) override {
    launch(args, scratch_.take(ssd_scratch_bytes(args.shape), native_stream(stream)), native_stream(stream));
  }
  void ssd_backward(Stream& stream, const SsdBackward& args) override {
    const cudaStream_t native = native_stream(stream);
    launch(args, scratch_.take(ssd_scratch_bytes(args.shape), native), native);
    launch_skip_gradient(args, scratch_.take(ssd_gates_scratch_bytes(args.shape.tokens, args.shape.heads), native),
                         native);
  }
  void ssd_cached(Stream& stream, const SsdCached& args) override { launch(args, native_stream(stream)); }
  void gated_norm_forward(Stream& stream, const GatedNormForward& args) override {
    launch(args, native_stream(stream));
  }
  void gated_norm_backward(Stream& stream, const GatedNormBackward& args) override {
    const int64_t size = args.group_size();
    const int64_t bytes = std::max(gated_norm_scratch_bytes(args.x.rows, args.x.cols / size, size),
                                   norm_groups_scratch_bytes(args.x.rows, args.x.cols, size));
    launch(args, scratch_.take(bytes, native_stream(stream)), native_stream(stream));
  }

  void move_heads(Stream& stream, const MoveHeads& args) override { launch(args, native_stream(stream)); }
  void dropout(Stream& stream, const Dropout& args) override { launch(args, native_stream(stream)); }
  void dora_factors(Stream& stream, const DoraFactors& args) override { launch(args, native_stream(stream)); }
  void scale_columns(Stream& stream, const ScaleColumns& args) override { launch(args, native_stream(stream)); }
  void output_gate_forward(Stream& stream, const OutputGateForward& args) override {
    launch(args, native_stream(stream));
  }
  void output_gate_backward(Stream& stream, const OutputGateBackward& args) override {
    launch(args, native_stream(stream));
  }
  void gated_forward(Stream& stream, const GatedForward& args) override { launch(args, native_stream(stream)); }
  void gated_backward(Stream& stream, const GatedBackward& args) override { launch(args, native_stream(stream)); }
  void scale_all(Stream& stream, const ScaleAll& args) override { launch(args, native_stream(stream)); }

  void route(Stream& stream, const Route& args) override { launch(args, native_stream(stream)); }
  void route_backward(Stream& stream, const RouteBackward& args) override { launch(args, native_stream(stream)); }
  void scale_choices(Stream& stream, const ScaleChoices& args) override { launch(args, native_stream(stream)); }
  void scale_choices_backward(Stream& stream, const ScaleChoicesBackward& args) override {
    launch(args, native_stream(stream));
  }
  void sort_by_expert(Stream& stream, const SortByExpert& args) override {
    launch(args, scratch_.take(sort_scratch_bytes(args), native_stream(stream)), native_stream(stream));
  }
  void gather_rows(Stream& stream, const GatherRows& args) override { launch(args, native_stream(stream)); }
  void experts_forward(Stream& stream, const ExpertsForward& args) override {
    experts_.forward(args, native_stream(stream));
  }
  void experts_backward_input(Stream& stream, const ExpertsBackwardInput& args) override {
    experts_.backward_input(args, native_stream(stream));
  }
  void experts_backward_weight(Stream& stream, const ExpertsBackwardWeight& args) override {
    experts_.backward_weight(args, native_stream(stream));
  }
  void experts_gated(Stream& stream, const ExpertsGated& args) override { launch(args, native_stream(stream)); }
  void experts_gated_backward(Stream& stream, const ExpertsGatedBackward& args) override {
    launch(args, native_stream(stream));
  }
  void combine_rows(Stream& stream, const CombineRows& args) override { launch(args, native_stream(stream)); }
  void count_experts(Stream& stream, const CountExperts& args) override {
    launch(args, scratch_.take(count_scratch_bytes(args), native_stream(stream)), native_stream(stream));
  }
  void balance_slopes(Stream& stream, const BalanceSlopes& args) override { launch(args, native_stream(stream)); }

  void cross_entropy(Stream& stream, const CrossEntropy& args) override { launch(args, native_stream(stream)); }
  void cap_logits(Stream& stream, const CapLogits& args) override { launch(args, native_stream(stream)); }
  void finish_gradient(Stream& stream, const FinishGradient& args) override { launch(args, native_stream(stream)); }
  void sum_losses(Stream& stream, const SumLosses& args) override { launch(args, native_stream(stream)); }
  void clip_factor(Stream& stream, const ClipFactor& args) override { launch(args, native_stream(stream)); }
  void unpack_weights(Stream& stream, const UnpackWeights& args) override { launch(args, native_stream(stream)); }
  void adamw(Stream& stream, const AdamWUpdate& args) override { launch(args, native_stream(stream)); }

 private:
  Device& device_;
  Scratch scratch_;
  CudaLinear linear_;
  CudnnAttention attention_;
  CudaExperts experts_;
};

}  // namespace

std::unique_ptr<Ops> make_cuda_ops(Device& device) {
  ensure(device.kind() == DeviceKind::cuda, "CUDA ops run on a CUDA device");
  return std::make_unique<CudaOps>(device);
}

std::string cuda_libraries() {
  // "12.9.1" for 120901 and a step of 100. CUDA's own version number has no third part.
  const auto dotted = [](size_t number, size_t step) {
    const std::string text = std::to_string(number / step / 100) + "." + std::to_string(number / step % 100);
    return step == 1 ? text : text + "." + std::to_string(number % step);
  };
  int runtime = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  return "CUDA " + dotted(static_cast<size_t>(runtime) / 10, 1) + ", cuBLASLt " + dotted(cublasLtGetVersion(), 100) +
         ", cuDNN " + dotted(cudnnGetVersion(), 100);
}

}  // namespace megatrain

#include "megatrain/host/thread_team.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/ops.h"

namespace megatrain {
namespace {

// Every op is one task on a host stream, which runs the kernel with this object's thread team.
class CpuOps final : public Ops {
 public:
  explicit CpuOps(const CpuOpsOptions& options)
      : simd_(options.simd), team_(team_size(options.threads)), context_{team_, cpu::matmul_for(options.simd)} {}

  std::string library() const override { return std::string("cpu ") + simd_name(simd_); }

  // Kernels keep their scratch in thread-local memory.
  int64_t scratch_bytes(const OpsShape&) override { return 0; }
  void reserve(const OpsShape&) override {}

  void embedding_forward(Stream& s, const EmbeddingForward& a) override { run(s, cpu::embedding_forward, a); }
  void embedding_backward(Stream& s, const EmbeddingBackward& a) override { run(s, cpu::embedding_backward, a); }
  void rmsnorm_forward(Stream& s, const RmsNormForward& a) override { run(s, cpu::rmsnorm_forward, a); }
  void rmsnorm_backward(Stream& s, const RmsNormBackward& a) override { run(s, cpu::rmsnorm_backward, a); }
  void rope(Stream& s, const Rope& a) override { run(s, cpu::rope, a); }
  void linear_forward(Stream& s, const LinearForward& a) override { run(s, cpu::linear_forward, a); }
  void linear_backward_input(Stream& s, const LinearBackwardInput& a) override {
    run(s, cpu::linear_backward_input, a);
  }
  void linear_backward_weight(Stream& s, const LinearBackwardWeight& a) override {
    run(s, cpu::linear_backward_weight, a);
  }
  void attention_forward(Stream& s, const AttentionForward& a) override { run(s, cpu::attention_forward, a); }
  void attention_backward(Stream& s, const AttentionBackward& a) override { run(s, cpu::attention_backward, a); }
  void attention_cached(Stream& s, const CachedAttention& a) override { run(s, cpu::attention_cached, a); }
  void short_conv_forward(Stream& s, const ShortConvForward& a) override { run(s, cpu::short_conv_forward, a); }
  void short_conv_backward(Stream& s, const ShortConvBackward& a) override { run(s, cpu::short_conv_backward, a); }
  void short_conv_cached(Stream& s, const ShortConvCached& a) override { run(s, cpu::short_conv_cached, a); }
  void delta_gates_forward(Stream& s, const DeltaGatesForward& a) override { run(s, cpu::delta_gates_forward, a); }
  void delta_gates_backward(Stream& s, const DeltaGatesBackward& a) override { run(s, cpu::delta_gates_backward, a); }
  void delta_rule_forward(Stream& s, const DeltaRuleForward& a) override { run(s, cpu::delta_rule_forward, a); }
  void delta_rule_backward(Stream& s, const DeltaRuleBackward& a) override { run(s, cpu::delta_rule_backward, a); }
  void delta_rule_cached(Stream& s, const DeltaRuleCached& a) override { run(s, cpu::delta_rule_cached, a); }
  void ssd_gates_forward(Stream& s, const SsdGatesForward& a) override { run(s, cpu::ssd_gates_forward, a); }
  void ssd_gates_backward(Stream& s, const SsdGatesBackward& a) override { run(s, cpu::ssd_gates_backward, a); }
  void ssd_forward(Stream& s, const SsdForward& a) override { run(s, cpu::ssd_forward, a); }
  void ssd_backward(Stream& s, const SsdBackward& a) override { run(s, cpu::ssd_backward, a); }
  void ssd_cached(Stream& s, const SsdCached& a) override { run(s, cpu::ssd_cached, a); }
  void gated_norm_forward(Stream& s, const GatedNormForward& a) override { run(s, cpu::gated_norm_forward, a); }
  void gated_norm_backward(Stream& s, const GatedNormBackward& a) override { run(s, cpu::gated_norm_backward, a); }
  void move_heads(Stream& s, const MoveHeads& a) override { run(s, cpu::move_heads, a); }
  void dropout(Stream& s, const Dropout& a) override { run(s, cpu::dropout, a); }
  void dora_factors(Stream& s, const DoraFactors& a) override { run(s, cpu::dora_factors, a); }
  void scale_columns(Stream& s, const ScaleColumns& a) override { run(s, cpu::scale_columns, a); }
  void move_columns(Stream& s, const MoveColumns& a) override { run(s, cpu::move_columns, a); }
  void output_gate_forward(Stream& s, const OutputGateForward& a) override { run(s, cpu::output_gate_forward, a); }
  void output_gate_backward(Stream& s, const OutputGateBackward& a) override { run(s, cpu::output_gate_backward, a); }
  void gated_forward(Stream& s, const GatedForward& a) override { run(s, cpu::gated_forward, a); }
  void gated_backward(Stream& s, const GatedBackward& a) override { run(s, cpu::gated_backward, a); }
  void scale_all(Stream& s, const ScaleAll& a) override { run(s, cpu::scale_all, a); }
  void route(Stream& s, const Route& a) override { run(s, cpu::route, a); }
  void route_backward(Stream& s, const RouteBackward& a) override { run(s, cpu::route_backward, a); }
  void scale_choices(Stream& s, const ScaleChoices& a) override { run(s, cpu::scale_choices, a); }
  void scale_choices_backward(Stream& s, const ScaleChoicesBackward& a) override {
    run(s, cpu::scale_choices_backward, a);
  }
  void sort_by_expert(Stream& s, const SortByExpert& a) override { run(s, cpu::sort_by_expert, a); }
  void gather_rows(Stream& s, const GatherRows& a) override { run(s, cpu::gather_rows, a); }
  void experts_forward(Stream& s, const ExpertsForward& a) override { run(s, cpu::experts_forward, a); }
  void experts_backward_input(Stream& s, const ExpertsBackwardInput& a) override {
    run(s, cpu::experts_backward_input, a);
  }
  void experts_backward_weight(Stream& s, const ExpertsBackwardWeight& a) override {
    run(s, cpu::experts_backward_weight, a);
  }
  void experts_gated(Stream& s, const ExpertsGated& a) override { run(s, cpu::experts_gated, a); }
  void experts_gated_backward(Stream& s, const ExpertsGatedBackward& a) override {
    run(s, cpu::experts_gated_backward, a);
  }
  void combine_rows(Stream& s, const CombineRows& a) override { run(s, cpu::combine_rows, a); }
  void count_experts(Stream& s, const CountExperts& a) override { run(s, cpu::count_experts, a); }
  void balance_slopes(Stream& s, const BalanceSlopes& a) override { run(s, cpu::balance_slopes, a); }
  void cross_entropy(Stream& s, const CrossEntropy& a) override { run(s, cpu::cross_entropy, a); }
  void cap_logits(Stream& s, const CapLogits& a) override { run(s, cpu::cap_logits, a); }
  void finish_gradient(Stream& s, const FinishGradient& a) override { run(s, cpu::finish_gradient, a); }
  void sum_losses(Stream& s, const SumLosses& a) override { run(s, cpu::sum_losses, a); }
  void clip_factor(Stream& s, const ClipFactor& a) override { run(s, cpu::clip_factor, a); }
  void adamw(Stream& s, const AdamWUpdate& a) override { run(s, cpu::adamw, a); }
  void unpack_weights(Stream& s, const UnpackWeights& a) override { run(s, cpu::unpack_weights, a); }

 private:
  template <class Args>
  void run(Stream& stream, void (*kernel)(const cpu::Context&, const Args&), const Args& args) {
    static_cast<HostStream&>(stream).run([this, kernel, args] { kernel(context_, args); });
  }

  Simd simd_;
  ThreadTeam team_;
  cpu::Context context_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(const CpuOpsOptions& options) { return std::make_unique<CpuOps>(options); }

}  // namespace megatrain

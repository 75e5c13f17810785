// Every op, as an interface with one object per device. All calls but adamw, which needs no scratch, use one compute
// stream, so they share one scratch buffer. Arguments are views of device memory that outlive the enqueued work.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/device/device.h"
#include "megatrain/ops/adamw.h"
#include "megatrain/ops/attention.h"
#include "megatrain/ops/attention_cached.h"
#include "megatrain/ops/columns.h"
#include "megatrain/ops/cross_entropy.h"
#include "megatrain/ops/delta_gates.h"
#include "megatrain/ops/delta_rule.h"
#include "megatrain/ops/dora.h"
#include "megatrain/ops/dropout.h"
#include "megatrain/ops/elementwise.h"
#include "megatrain/ops/embedding.h"
#include "megatrain/ops/experts.h"
#include "megatrain/ops/gated_norm.h"
#include "megatrain/ops/gradient.h"
#include "megatrain/ops/heads.h"
#include "megatrain/ops/linear.h"
#include "megatrain/ops/op_note.h"
#include "megatrain/ops/output_gate.h"
#include "megatrain/ops/rmsnorm.h"
#include "megatrain/ops/rope.h"
#include "megatrain/ops/short_conv.h"
#include "megatrain/ops/ssd.h"
#include "megatrain/ops/ssd_gates.h"
#include "megatrain/ops/unpack.h"

namespace megatrain {

// The largest shapes that the ops will get. Scratch is sized from this once, before the first step.
struct OpsShape {
  DType dtype = DType::bf16;                   // weights and activations
  int64_t tokens = 0;                          // T of a micro-batch; in generation, the maximum of new tokens in a pass
  std::vector<AttentionShape> attention = {};  // distinct shapes of the layers
  DeltaRuleShape delta_rule{};
  SsdShape ssd{};
  int64_t conv_channels = 0;  // of short convolutions outside delta nets and Mamba
  int64_t hidden = 0;
  int64_t ff = 0;
  int64_t max_documents = 1;  // in a micro-batch
  int64_t longest_document = 0;
  bool generating = false;  // forward only, with attention against a cache; the documents are not read
};

// The algorithm that a library uses for each matmul, both as text: a description of the matmul, and the library's
// opaque description of the algorithm. It affects the bits of the result, so it is part of a run's identity.
using AlgorithmTable = std::map<std::string, std::string>;

class Ops {
 public:
  virtual ~Ops() = default;

  // What else affects bits: the device model and the library versions.
  virtual std::string library() const = 0;

  // Fixes the algorithm of every matmul among the calls for all later calls: the one in `known`, or else the fastest.
  // It is timed now, on memory that is freed on return. Returns the choice for each. A matmul that was never passed
  // uses the library's first proposal. Throws Error(bad_input) if the library refuses a known algorithm.
  virtual AlgorithmTable tune(const std::vector<OpNote>&, const AlgorithmTable& /*known*/) { return {}; }

  // Device bytes that reserve() will allocate, known without allocating them.
  virtual int64_t scratch_bytes(const OpsShape& shape) = 0;
  virtual void reserve(const OpsShape& shape) = 0;

  // Builds in advance what a library would otherwise build at the first call of each shape, for documents of unequal
  // length. So no step waits for it. Affects no bit.
  virtual void prepare(const OpsShape&) {}

  virtual void embedding_forward(Stream&, const EmbeddingForward&) = 0;
  virtual void embedding_backward(Stream&, const EmbeddingBackward&) = 0;
  virtual void move_columns(Stream&, const MoveColumns&) = 0;
  virtual void rmsnorm_forward(Stream&, const RmsNormForward&) = 0;
  virtual void rmsnorm_backward(Stream&, const RmsNormBackward&) = 0;
  virtual void rope(Stream&, const Rope&) = 0;
  virtual void move_heads(Stream&, const MoveHeads&) = 0;
  virtual void linear_forward(Stream&, const LinearForward&) = 0;
  virtual void linear_backward_input(Stream&, const LinearBackwardInput&) = 0;
  virtual void linear_backward_weight(Stream&, const LinearBackwardWeight&) = 0;
  virtual void attention_forward(Stream&, const AttentionForward&) = 0;
  virtual void attention_backward(Stream&, const AttentionBackward&) = 0;
  virtual void attention_cached(Stream&, const CachedAttention&) = 0;
  virtual void short_conv_forward(Stream&, const ShortConvForward&) = 0;
  virtual void short_conv_backward(Stream&, const ShortConvBackward&) = 0;
  virtual void short_conv_cached(Stream&, const ShortConvCached&) = 0;
  virtual void delta_gates_forward(Stream&, const DeltaGatesForward&) = 0;
  virtual void delta_gates_backward(Stream&, const DeltaGatesBackward&) = 0;
  virtual void delta_rule_forward(Stream&, const DeltaRuleForward&) = 0;
  virtual void delta_rule_backward(Stream&, const DeltaRuleBackward&) = 0;
  virtual void delta_rule_cached(Stream&, const DeltaRuleCached&) = 0;
  virtual void ssd_gates_forward(Stream&, const SsdGatesForward&) = 0;
  virtual void ssd_gates_backward(Stream&, const SsdGatesBackward&) = 0;
  virtual void ssd_forward(Stream&, const SsdForward&) = 0;
  virtual void ssd_backward(Stream&, const SsdBackward&) = 0;
  virtual void ssd_cached(Stream&, const SsdCached&) = 0;
  virtual void gated_norm_forward(Stream&, const GatedNormForward&) = 0;
  virtual void gated_norm_backward(Stream&, const GatedNormBackward&) = 0;
  virtual void dropout(Stream&, const Dropout&) = 0;
  virtual void dora_factors(Stream&, const DoraFactors&) = 0;
  virtual void scale_columns(Stream&, const ScaleColumns&) = 0;
  virtual void gated_forward(Stream&, const GatedForward&) = 0;
  virtual void gated_backward(Stream&, const GatedBackward&) = 0;
  virtual void output_gate_forward(Stream&, const OutputGateForward&) = 0;
  virtual void output_gate_backward(Stream&, const OutputGateBackward&) = 0;
  virtual void scale_all(Stream&, const ScaleAll&) = 0;
  virtual void route(Stream&, const Route&) = 0;
  virtual void route_backward(Stream&, const RouteBackward&) = 0;
  virtual void scale_choices(Stream&, const ScaleChoices&) = 0;
  virtual void scale_choices_backward(Stream&, const ScaleChoicesBackward&) = 0;
  virtual void sort_by_expert(Stream&, const SortByExpert&) = 0;
  virtual void gather_rows(Stream&, const GatherRows&) = 0;
  virtual void experts_forward(Stream&, const ExpertsForward&) = 0;
  virtual void experts_backward_input(Stream&, const ExpertsBackwardInput&) = 0;
  virtual void experts_backward_weight(Stream&, const ExpertsBackwardWeight&) = 0;
  virtual void experts_gated(Stream&, const ExpertsGated&) = 0;
  virtual void experts_gated_backward(Stream&, const ExpertsGatedBackward&) = 0;
  virtual void combine_rows(Stream&, const CombineRows&) = 0;
  virtual void count_experts(Stream&, const CountExperts&) = 0;
  virtual void balance_slopes(Stream&, const BalanceSlopes&) = 0;
  virtual void cross_entropy(Stream&, const CrossEntropy&) = 0;
  virtual void cap_logits(Stream&, const CapLogits&) = 0;
  virtual void finish_gradient(Stream&, const FinishGradient&) = 0;
  virtual void sum_losses(Stream&, const SumLosses&) = 0;
  virtual void clip_factor(Stream&, const ClipFactor&) = 0;
  virtual void adamw(Stream&, const AdamWUpdate&) = 0;
  virtual void unpack_weights(Stream&, const UnpackWeights&) = 0;
};

struct CpuOpsOptions {
  int threads = 0;          // 0: all usable CPUs
  Simd simd = best_simd();  // instruction set of the matmuls; each gives the same bits
};
std::unique_ptr<Ops> make_cpu_ops(const CpuOpsOptions& options);

// `device` must come from make_cuda_device().
std::unique_ptr<Ops> make_cuda_ops(Device& device);

// "CUDA 12.9, cuBLASLt 12.9.1, cuDNN 9.10.2": the libraries linked in; empty in a build without CUDA.
std::string cuda_libraries();

}  // namespace megatrain

#include "megatrain/ops/cuda/attention_cudnn.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/device/cuda/check.h"
#include "megatrain/ops/cuda/kernels.h"

namespace megatrain {

namespace {

namespace fe = cudnn_frontend;

constexpr int64_t kPairsBytes = 512 * kMiB;
constexpr int64_t kAlign = 256;

// Tensors of both graphs. Those before kStats hold heads of tokens; their ragged offsets have ids of their own.
enum Tensor : int { kQ, kK, kV, kOut, kGradOut, kGradQ, kGradK, kGradV, kStats, kTensors };
constexpr int64_t kOffsetIds = 100, kLengthId = 200, kKeyLengthId = 201;
static_assert(kTensors == kRaggedTensors);
constexpr int kForwardTensors[] = {kQ, kK, kV, kOut, kStats};
constexpr int kBackwardTensors[] = {kQ, kK, kV, kOut, kGradOut, kGradQ, kGradK, kGradV, kStats};

// All that a plan depends on.
struct Case {
  bool backward;
  bool ragged;
  int64_t documents;  // of one call
  int64_t length;     // tokens of a document; of the longest, rounded up, when ragged
  int64_t heads;      // of one call
  int64_t kv_heads;   // of one call
  int64_t head_dim;
  int64_t window;
  int64_t scale_bits;
  int64_t tokens;                         // of the micro-batch; 0 when uniform
  std::array<int64_t, kTensors> strides;  // of a token; 0 for tensors the direction has not
  auto operator<=>(const Case&) const = default;
};

struct Plan {
  std::unique_ptr<fe::graph::Graph> graph;  // null: cuDNN does not take the case
  int64_t workspace = 0;
};

bool is_key(int tensor) { return tensor == kK || tensor == kV || tensor == kGradK || tensor == kGradV; }

int64_t power_of_two_above(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); }
int64_t aligned(int64_t bytes) { return round_up(bytes, kAlign); }

using TensorPointer = std::shared_ptr<fe::graph::Tensor_attributes>;

std::vector<int64_t> dims_of(const Case& c, int tensor) {
  return {c.documents, is_key(tensor) ? c.kv_heads : c.heads, c.length, tensor == kStats ? 1 : c.head_dim};
}

std::vector<int64_t> strides_of(const Case& c, int tensor) {
  if (tensor != kStats) return {c.length * c.strides[tensor], c.head_dim, c.strides[tensor], 1};
  // Log-sum-exps: (tokens, heads) when ragged, (documents, heads, length) when uniform.
  if (c.ragged) return {c.length * c.strides[kStats], 1, c.strides[kStats], 1};
  return {c.heads * c.length, c.length, 1, 1};
}

// Gives a tensor its place, shape and, for ragged documents, the table of where each begins.
void describe(fe::graph::Graph& graph, const Case& c, int tensor, fe::graph::Tensor_attributes& attributes) {
  attributes.set_uid(tensor + 1).set_dim(dims_of(c, tensor)).set_stride(strides_of(c, tensor));
  attributes.set_data_type(tensor == kStats ? fe::DataType_t::FLOAT : fe::DataType_t::BFLOAT16);
  if (!c.ragged) return;
  attributes.set_ragged_offset(graph.tensor(fe::graph::Tensor_attributes()
                                                .set_name("offsets" + std::to_string(tensor))
                                                .set_uid(kOffsetIds + tensor)
                                                .set_dim({c.documents + 1, 1, 1, 1})
                                                .set_stride({1, 1, 1, 1})
                                                .set_data_type(fe::DataType_t::INT64)));
}

TensorPointer input(fe::graph::Graph& graph, const Case& c, int tensor) {
  fe::graph::Tensor_attributes attributes;
  attributes.set_name("tensor" + std::to_string(tensor));
  describe(graph, c, tensor, attributes);
  return graph.tensor(attributes);
}

void output(fe::graph::Graph& graph, const Case& c, int tensor, const TensorPointer& pointer) {
  pointer->set_output(true);
  describe(graph, c, tensor, *pointer);
}

// Masks are the same in both directions: token i of a document sees j with j <= i and, in a window, i < j + window.
template <class Attributes>
void set_masks(fe::graph::Graph& graph, const Case& c, Attributes& attributes) {
  attributes.set_attn_scale(std::bit_cast<float>(static_cast<uint32_t>(c.scale_bits)))
      .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  if (c.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(c.window));
  if (!c.ragged) return;
  const auto lengths = [&](const char* name, int64_t id) {
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_name(name)
                            .set_uid(id)
                            .set_dim({c.documents, 1, 1, 1})
                            .set_stride({1, 1, 1, 1})
                            .set_data_type(fe::DataType_t::INT32));
  };
  attributes.set_padding_mask(true)
      .set_seq_len_q(lengths("lengths", kLengthId))
      .set_seq_len_kv(lengths("key_lengths", kKeyLengthId))
      .set_max_total_seq_len_q(c.tokens)
      .set_max_total_seq_len_kv(c.tokens);
}

void add_forward(fe::graph::Graph& graph, const Case& c) {
  auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
  set_masks(graph, c, attributes);
  auto [out, stats] = graph.sdpa(input(graph, c, kQ), input(graph, c, kK), input(graph, c, kV), attributes);
  output(graph, c, kOut, out);
  output(graph, c, kStats, stats);
}

void add_backward(fe::graph::Graph& graph, const Case& c) {
  auto attributes =
      fe::graph::SDPA_backward_attributes().set_name("attention_backward").set_deterministic_algorithm(true);
  set_masks(graph, c, attributes);
  auto [grad_q, grad_k, grad_v] =
      graph.sdpa_backward(input(graph, c, kQ), input(graph, c, kK), input(graph, c, kV), input(graph, c, kOut),
                          input(graph, c, kGradOut), input(graph, c, kStats), attributes);
  output(graph, c, kGradQ, grad_q);
  output(graph, c, kGradK, grad_k);
  output(graph, c, kGradV, grad_v);
}

// Whether cuDNN can read the rows: 16-byte aligned heads.
bool readable(const View& view) {
  return view.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row_stride % 8 == 0;
}

bool takes(const AttentionShape& shape, int64_t longest, bool ragged) {
  // cuDNN's packed backward has a known fault at head sizes that are no multiple of 16.
  const int64_t multiple = ragged ? 16 : 8;
  return shape.tokens > 0 && shape.head_dim % multiple == 0 && shape.head_dim <= 256 && longest > 1;
}

Case base_case(const AttentionShape& shape, int64_t longest, bool ragged) {
  Case c{};
  c.ragged = ragged;
  // Few lengths, so that ragged batches share plans: powers of two, but no longer than the micro-batch.
  c.length =
      ragged ? std::min(std::max<int64_t>(power_of_two_above(longest), 128), round_up(shape.tokens, 128)) : longest;
  c.heads = shape.heads;
  c.kv_heads = shape.kv_heads;
  c.head_dim = shape.head_dim;
  c.window = shape.window > 0 && shape.window < longest ? shape.window : 0;
  c.scale_bits = std::bit_cast<uint32_t>(shape.scale);
  c.tokens = ragged ? shape.tokens : 0;
  c.strides[kStats] = shape.heads;
  return c;
}

// How a pass over all documents is cut into equal calls.
struct Cut {
  int64_t calls;      // over documents
  int64_t documents;  // of a call
  int64_t kv_heads;   // of a call
};

Cut whole(const AttentionShape& shape, int64_t documents, bool ragged) {
  return {1, ragged ? power_of_two_above(documents) : documents, shape.kv_heads};
}

Cut cut_backward(const AttentionShape& shape, int64_t documents, int64_t length) {
  const int64_t head = round_up(length, 64) * round_up(length, 128) * 2;  // bytes of one head's matrix
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t room = std::max<int64_t>(kPairsBytes / (head * shape.heads), 1);
  Cut cut{1, 1, shape.kv_heads};
  for (int64_t n = 1; n <= std::min(room, documents); ++n) {
    if (documents % n == 0) cut.documents = n;
  }
  cut.calls = ceil_div(documents, cut.documents);
  if (cut.documents == 1) {
    const int64_t heads = std::max<int64_t>(kPairsBytes / (head * group), 1);
    while (cut.kv_heads > 1 && (cut.kv_heads > heads || shape.kv_heads % cut.kv_heads != 0)) --cut.kv_heads;
  }
  return cut;
}

// Scratch of one pass: tables of ragged documents, cuDNN's workspace.
struct Room {
  int64_t lengths, offsets[kTensors], workspace, bytes;
};

Room room_of(bool ragged, int64_t padded, int64_t workspace) {
  Room room{};
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t begin = at;
    at += aligned(bytes);
    return begin;
  };
  if (ragged) {
    room.lengths = take(padded * static_cast<int64_t>(sizeof(int32_t)));
    for (int64_t& offsets : room.offsets) offsets = take((padded + 1) * static_cast<int64_t>(sizeof(int64_t)));
  }
  room.workspace = take(workspace);
  room.bytes = at;
  return room;
}

}  // namespace

class CudnnAttention::Plans {
 public:
  Plans() { CUDA_CHECK(cudnnCreate(&handle_)); }
  ~Plans() {
    plans_.clear();
    cudnnDestroy(handle_);
  }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;

  cudnnHandle_t handle() const { return handle_; }

  const Plan& get(const Case& c) {
    auto found = plans_.find(c);
    if (found == plans_.end()) found = plans_.emplace(c, build(c)).first;
    return found->second;
  }

 private:
  Plan build(const Case& c) {
    Plan plan{std::make_unique<fe::graph::Graph>(), 0};
    plan.graph->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (c.backward) {
      add_backward(*plan.graph, c);
    } else {
      add_forward(*plan.graph, c);
    }
    fe::error_t status = plan.graph->build(handle_, {fe::HeurMode_t::A});
    if (status.is_good()) status = plan.graph->get_workspace_size(plan.workspace);
    if (status.is_bad()) {
      if (!said_) {
        log_warn("cuDNN has no " + std::string(c.backward ? "deterministic backward" : "forward") +
                 " attention for heads of " + std::to_string(c.head_dim) + " over " +
                 (c.ragged ? "ragged" : "uniform") + " documents of up to " + std::to_string(c.length) + " tokens (" +
                 status.get_message() + "); using the slower built-in kernel");
      }
      said_ = true;
      return {};
    }
    return plan;
  }

  cudnnHandle_t handle_ = nullptr;
  std::map<Case, Plan> plans_;
  bool said_ = false;
};

CudnnAttention::CudnnAttention(Scratch& scratch) : scratch_(scratch), plans_(std::make_unique<Plans>()) {}
CudnnAttention::~CudnnAttention() = default;

namespace {

// One direction of attention as cuDNN is called for it.
struct Pass {
  AttentionShape shape;
  Documents documents;
  bool backward;
  std::array<View, kTensors> views;  // kStats: only data
  Cut cut;
  Case plan_case;
};

Case case_of(const Pass& pass) {
  const bool ragged = !pass.documents.uniform;
  Case c = base_case(pass.shape, pass.documents.longest, ragged);
  c.backward = pass.backward;
  c.documents = pass.cut.documents;
  c.kv_heads = pass.cut.kv_heads;
  c.heads = pass.cut.kv_heads * (pass.shape.heads / pass.shape.kv_heads);
  for (int tensor = 0; tensor < kStats; ++tensor) {
    c.strides[tensor] = pass.views[tensor].row_stride;
  }
  return c;
}

Pass make_pass(const AttentionShape& shape, const Documents& documents, bool backward,
               const std::array<View, kTensors>& views) {
  Pass pass{shape, documents, backward, views, {}, {}};
  const bool ragged = !documents.uniform;
  const int64_t length = base_case(shape, documents.longest, ragged).length;
  pass.cut = backward ? cut_backward(shape, documents.count, length) : whole(shape, documents.count, ragged);
  pass.plan_case = case_of(pass);
  return pass;
}

void run(const Pass& pass, const Plan& plan, cudnnHandle_t handle, Scratch& scratch, cudaStream_t stream) {
  const AttentionShape& shape = pass.shape;
  const Case& c = pass.plan_case;
  const int64_t padded = pass.cut.calls * c.documents, group = shape.heads / shape.kv_heads;
  const Room room = room_of(c.ragged, padded, plan.workspace);
  std::byte* memory = scratch.take(std::max<int64_t>(room.bytes, kAlign), stream);
  CUDA_CHECK(cudnnSetStream(handle, stream));

  std::array<std::byte*, kTensors> data{};
  for (int tensor = 0; tensor < kTensors; ++tensor) data[tensor] = static_cast<std::byte*>(pass.views[tensor].data);
  auto* lengths = reinterpret_cast<int32_t*>(memory + room.lengths);
  RaggedTables tables{pass.documents, padded, lengths, {}, {}, 0};
  if (c.ragged) {
    tables.tensors = kTensors;
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      tables.offsets[tensor] = reinterpret_cast<int64_t*>(memory + room.offsets[tensor]);
      tables.strides[tensor] = c.strides[tensor];
    }
    launch(tables, stream);
  }

  const auto call = [&](int64_t index, int64_t kv_head) {
    std::unordered_map<int64_t, void*> pointers;
    const auto bind = [&](int tensor) {
      const int64_t head = is_key(tensor) ? kv_head : kv_head * group;
      int64_t bytes;
      if (tensor == kStats) {
        // Cut by heads only when a call is one document, so (documents, heads, length) is a plain offset too.
        bytes = (c.ragged ? head : index * c.documents * shape.heads * c.length + head * c.length) * 4;
      } else {
        bytes = ((c.ragged ? 0 : index * c.documents * c.length * c.strides[tensor]) + head * shape.head_dim) * 2;
      }
      pointers[tensor + 1] = data[tensor] + bytes;
      if (c.ragged) pointers[kOffsetIds + tensor] = tables.offsets[tensor] + index * c.documents;
    };
    if (pass.backward) {
      for (const int tensor : kBackwardTensors) bind(tensor);
    } else {
      for (const int tensor : kForwardTensors) bind(tensor);
    }
    if (c.ragged) {
      pointers[kLengthId] = lengths + index * c.documents;
      pointers[kKeyLengthId] = lengths + index * c.documents;
    }
    fe::error_t status = plan.graph->execute(handle, pointers, memory + room.workspace);
    if (status.is_bad()) fail_internal("cuDNN attention failed: " + status.get_message());
  };
  for (int64_t index = 0; index < pass.cut.calls; ++index) {
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += c.kv_heads) call(index, kv_head);
  }
}

bool all_readable(const std::array<View, kTensors>& views) {
  return std::all_of(views.begin(), views.begin() + kStats,
                     [](const View& view) { return view.empty() || readable(view); });
}

View stats_view(const float* lse) { return {const_cast<float*>(lse), DType::f32, 1, 1, 1}; }

}  // namespace

bool CudnnAttention::forward(const AttentionForward& args, cudaStream_t stream) {
  const std::array<View, kTensors> views{
      args.q, args.k, args.v, args.out, View{}, View{}, View{}, View{}, stats_view(args.lse)};
  if (!takes(args.shape, args.documents.longest, !args.documents.uniform) || !all_readable(views)) return false;
  const Pass pass = make_pass(args.shape, args.documents, false, views);
  const Plan& plan = plans_->get(pass.plan_case);
  if (!plan.graph) return false;
  run(pass, plan, plans_->handle(), scratch_, stream);
  return true;
}

bool CudnnAttention::backward(const AttentionBackward& args, cudaStream_t stream) {
  const std::array<View, kTensors> views{
      args.q, args.k, args.v, args.out, args.grad_out, args.grad_q, args.grad_k, args.grad_v, stats_view(args.lse)};
  // cuDNN 9.14's deterministic backward over ragged documents was seen to give wrong gradients on an H200
  if (!args.documents.uniform || !takes(args.shape, args.documents.longest, false) || !all_readable(views))
    return false;
  const Pass pass = make_pass(args.shape, args.documents, true, views);
  const Plan& plan = plans_->get(pass.plan_case);
  if (!plan.graph) return false;
  run(pass, plan, plans_->handle(), scratch_, stream);
  return true;
}

int64_t CudnnAttention::scratch_bytes(const AttentionShape& shape, int64_t documents, int64_t longest) {
  const int64_t packed = (shape.heads + 2 * shape.kv_heads) * shape.head_dim, out = shape.heads * shape.head_dim;
  std::array<View, kTensors> views{};
  for (const int tensor : {kQ, kK, kV, kGradQ, kGradK, kGradV}) views[tensor].row_stride = packed;
  for (const int tensor : {kOut, kGradOut}) views[tensor].row_stride = out;

  int64_t most = 0;
  const auto ask = [&](const Documents& d) {
    if (!takes(shape, d.longest, !d.uniform)) return;
    for (const bool backward : {false, true}) {
      if (backward && !d.uniform) continue;
      std::array<View, kTensors> used = views;
      if (!backward) {
        for (const int tensor : {kGradOut, kGradQ, kGradK, kGradV}) used[tensor].row_stride = 0;
      }
      const Pass pass = make_pass(shape, d, backward, used);
      const Plan& plan = plans_->get(pass.plan_case);
      if (!plan.graph) continue;
      const int64_t padded = pass.cut.calls * pass.cut.documents;
      most = std::max(most, room_of(!d.uniform, padded, plan.workspace).bytes);
    }
  };
  if (longest <= 0) return 0;
  if (shape.tokens % longest == 0) ask({nullptr, shape.tokens / longest, longest, true});
  if (documents * longest != shape.tokens) ask({nullptr, documents, longest, false});
  return most;
}

}  // namespace megatrain

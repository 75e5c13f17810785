#include "megatrain/ops/cuda/attention/graph.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/device/cuda/check.h"

namespace megatrain {

namespace {

namespace fe = cudnn_frontend;
using TensorPointer = std::shared_ptr<fe::graph::Tensor_attributes>;

int64_t id_of(int tensor) { return tensor + 1; }
int64_t offsets_id_of(int tensor) { return kAttentionTensors + id_of(tensor); }
// The lengths of documents, which cuDNN takes twice: for queries and for keys.
constexpr int64_t kQueriesId = 2 * kAttentionTensors + 1, kKeysId = kQueriesId + 1;

// Adds a case's tensors and its one operation to a graph.
class CaseGraph {
 public:
  CaseGraph(fe::graph::Graph& graph, const AttentionCase& c) : graph_(graph), c_(c) {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  void add_forward() {
    auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    set_masks(attributes);
    auto [out, stats] = graph_.sdpa(input(kQ), input(kK), input(kV), attributes);
    output(kOut, out);
    output(kStats, stats);
  }

  void add_backward() {
    auto attributes =
        fe::graph::SDPA_backward_attributes().set_name("attention_backward").set_deterministic_algorithm(true);
    set_masks(attributes);
    auto [grad_q, grad_k, grad_v] =
        graph_.sdpa_backward(input(kQ), input(kK), input(kV), input(kOut), input(kGradOut), input(kStats), attributes);
    output(kGradQ, grad_q);
    output(kGradK, grad_k);
    output(kGradV, grad_v);
  }

 private:
  void describe(int tensor, fe::graph::Tensor_attributes& attributes) {
    const int64_t heads = is_key(tensor) ? c_.kv_heads : c_.heads, stride = c_.strides[static_cast<size_t>(tensor)];
    attributes.set_uid(id_of(tensor));
    if (c_.ragged)
      attributes.set_ragged_offset(
          numbers("offsets" + std::to_string(tensor), offsets_id_of(tensor), c_.documents + 1));
    if (tensor == kStats) {
      attributes.set_dim({c_.documents, heads, c_.length, 1}).set_data_type(fe::DataType_t::FLOAT);
      if (c_.ragged) {
        attributes.set_stride({c_.length * stride, 1, stride, 1});
      } else {
        attributes.set_stride({heads * c_.length, c_.length, 1, 1});
      }
    } else {
      const int64_t tokens = is_key(tensor) ? c_.keys : c_.length;
      attributes.set_dim({c_.documents, heads, tokens, c_.head_dim})
          .set_stride({tokens * stride, c_.head_dim, stride, 1})
          .set_data_type(fe::DataType_t::BFLOAT16);
    }
  }

  TensorPointer input(int tensor) {
    fe::graph::Tensor_attributes attributes;
    attributes.set_name("tensor" + std::to_string(tensor));
    describe(tensor, attributes);
    return graph_.tensor(attributes);
  }

  void output(int tensor, const TensorPointer& pointer) {
    pointer->set_output(true);
    describe(tensor, *pointer);
  }

  // One row of `places`.
  TensorPointer numbers(const std::string& name, int64_t id, int64_t count) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_name(name)
                             .set_uid(id)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(fe::DataType_t::INT32));
  }

  // Masks are the same in both directions: token i of a document sees j if j <= i and, with a window, i < j + window.
  template <class Attributes>
  void set_masks(Attributes& attributes) {
    attributes.set_attn_scale(c_.scale);
    if (c_.ragged)
      attributes.set_padding_mask(true)
          .set_seq_len_q(numbers("queries", kQueriesId, c_.documents))
          .set_seq_len_kv(numbers("keys", kKeysId, c_.documents));
    if (!c_.masked) return;
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    if (c_.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(c_.window));
  }

  fe::graph::Graph& graph_;
  const AttentionCase& c_;
};

}  // namespace

struct AttentionGraphs::State {
  // A handle serves one thread at a time.
  struct Handle {
    Handle() { CUDA_CHECK(cudnnCreate(&value)); }
    ~Handle() { cudnnDestroy(value); }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    cudnnHandle_t value = nullptr;
  };
  struct Entry {
    std::shared_ptr<Handle> handle;           // the graph was built with it, and runs on it
    std::unique_ptr<fe::graph::Graph> graph;  // null: cuDNN does not support the case
    int64_t workspace = kRefused;
    std::string refusal;
  };

  const Entry& get(const AttentionCase& c) {
    const auto found = entries.find(c);
    return found != entries.end() ? found->second : add(c, build(c, handle));
  }

  const Entry& add(const AttentionCase& c, Entry entry) {
    if (!entry.graph && !said && !c.ragged) {  // for ragged cases, padded documents are tried next
      log_warn("cuDNN has no " + std::string(c.backward ? "deterministic backward" : "forward") +
               " attention for heads of " + std::to_string(c.head_dim) + " over documents of " +
               std::to_string(c.length) + " tokens (" + entry.refusal + "); using the slower built-in kernel");
      said = true;
    }
    return entries.emplace(c, std::move(entry)).first->second;
  }

  static Entry build(const AttentionCase& c, const std::shared_ptr<Handle>& handle) {
    Entry entry{handle, std::make_unique<fe::graph::Graph>(), 0, ""};
    CaseGraph tensors(*entry.graph, c);
    if (c.backward) {
      tensors.add_backward();
    } else {
      tensors.add_forward();
    }
    fe::error_t status = entry.graph->build(handle->value, {fe::HeurMode_t::A});
    if (status.is_good()) status = entry.graph->get_workspace_size(entry.workspace);
    if (status.is_good()) return entry;
    return {.refusal = status.get_message()};
  }

  // Members are destroyed in reverse order, here and in Entry: graphs before the handles that they use.
  std::shared_ptr<Handle> handle = std::make_shared<Handle>();
  std::map<AttentionCase, Entry> entries;
  bool said = false;
};

AttentionGraphs::AttentionGraphs() : state_(std::make_unique<State>()) {}
AttentionGraphs::~AttentionGraphs() = default;

int64_t AttentionGraphs::workspace(const AttentionCase& c) { return state_->get(c).workspace; }

void AttentionGraphs::prepare(const std::vector<AttentionCase>& cases) {
  constexpr size_t kThreads = 8;
  std::vector<AttentionCase> missing;
  for (const AttentionCase& c : std::set<AttentionCase>(cases.begin(), cases.end())) {
    if (!state_->entries.contains(c)) missing.push_back(c);
  }
  if (missing.empty()) return;
  const auto start = std::chrono::steady_clock::now();
  int device = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  std::vector<State::Entry> built(missing.size());
  std::atomic<size_t> next = 0;
  std::vector<std::future<void>> threads;
  for (size_t i = 0; i < std::min(kThreads, missing.size()); ++i) {
    threads.push_back(std::async(std::launch::async, [&] {
      CUDA_CHECK(cudaSetDevice(device));
      const auto handle = std::make_shared<State::Handle>();
      for (size_t at = next++; at < missing.size(); at = next++) built[at] = State::build(missing[at], handle);
    }));
  }
  for (std::future<void>& thread : threads) thread.get();
  for (size_t i = 0; i < missing.size(); ++i) state_->add(missing[i], std::move(built[i]));
  const auto taken =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count();
  log_info("attention of packed documents: " + std::to_string(missing.size()) + " shapes, built in " +
           std::to_string(taken) + " ms");
}

void AttentionGraphs::execute(const AttentionCase& c, const std::array<void*, kAttentionTensors>& data, void* workspace,
                              cudaStream_t stream, int32_t* places) {
  const State::Entry& entry = state_->get(c);
  ensure(entry.graph != nullptr, "cuDNN takes the attention it is asked for");
  std::unordered_map<int64_t, void*> pointers;
  for (int tensor = 0; tensor < kAttentionTensors; ++tensor) {
    if (!is_used(tensor, c.backward)) continue;
    pointers[id_of(tensor)] = data[static_cast<size_t>(tensor)];
    if (c.ragged) pointers[offsets_id_of(tensor)] = places + tensor * (c.documents + 1);
  }
  if (c.ragged) pointers[kQueriesId] = pointers[kKeysId] = places + kAttentionTensors * (c.documents + 1);
  CUDA_CHECK(cudnnSetStream(entry.handle->value, stream));
  fe::error_t status = entry.graph->execute(entry.handle->value, pointers, workspace);
  if (status.is_bad()) fail_internal("cuDNN attention failed: " + status.get_message());
}

}  // namespace megatrain

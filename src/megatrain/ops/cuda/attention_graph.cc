#include "megatrain/ops/cuda/attention_graph.h"

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

void describe(const AttentionCase& c, int tensor, fe::graph::Tensor_attributes& attributes) {
  const int64_t heads = is_key(tensor) ? c.kv_heads : c.heads;
  attributes.set_uid(id_of(tensor));
  if (tensor == kStats) {
    attributes.set_dim({c.documents, heads, c.length, 1})
        .set_stride({heads * c.length, c.length, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  } else {
    const int64_t stride = c.strides[static_cast<size_t>(tensor)], tokens = is_key(tensor) ? c.keys : c.length;
    attributes.set_dim({c.documents, heads, tokens, c.head_dim})
        .set_stride({tokens * stride, c.head_dim, stride, 1})
        .set_data_type(fe::DataType_t::BFLOAT16);
  }
}

TensorPointer input(fe::graph::Graph& graph, const AttentionCase& c, int tensor) {
  fe::graph::Tensor_attributes attributes;
  attributes.set_name("tensor" + std::to_string(tensor));
  describe(c, tensor, attributes);
  return graph.tensor(attributes);
}

void output(const AttentionCase& c, int tensor, const TensorPointer& pointer) {
  pointer->set_output(true);
  describe(c, tensor, *pointer);
}

// Masks are the same in both directions: token i of a document sees j with j <= i and, in a window, i < j + window.
template <class Attributes>
void set_masks(const AttentionCase& c, Attributes& attributes) {
  attributes.set_attn_scale(c.scale);
  if (!c.masked) return;
  attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  if (c.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(c.window));
}

void add_forward(fe::graph::Graph& graph, const AttentionCase& c) {
  auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
  set_masks(c, attributes);
  auto [out, stats] = graph.sdpa(input(graph, c, kQ), input(graph, c, kK), input(graph, c, kV), attributes);
  output(c, kOut, out);
  output(c, kStats, stats);
}

void add_backward(fe::graph::Graph& graph, const AttentionCase& c) {
  auto attributes =
      fe::graph::SDPA_backward_attributes().set_name("attention_backward").set_deterministic_algorithm(true);
  set_masks(c, attributes);
  auto [grad_q, grad_k, grad_v] =
      graph.sdpa_backward(input(graph, c, kQ), input(graph, c, kK), input(graph, c, kV), input(graph, c, kOut),
                          input(graph, c, kGradOut), input(graph, c, kStats), attributes);
  output(c, kGradQ, grad_q);
  output(c, kGradK, grad_k);
  output(c, kGradV, grad_v);
}

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
    std::shared_ptr<Handle> handle;           // with which the graph was built, and runs
    std::unique_ptr<fe::graph::Graph> graph;  // null: cuDNN does not take the case
    int64_t workspace = kRefused;
    std::string refusal;
  };

  const Entry& get(const AttentionCase& c) {
    const auto found = entries.find(c);
    return found != entries.end() ? found->second : add(c, build(c, handle));
  }

  const Entry& add(const AttentionCase& c, Entry entry) {
    if (!entry.graph && !said) {
      log_warn("cuDNN has no " + std::string(c.backward ? "deterministic backward" : "forward") +
               " attention for heads of " + std::to_string(c.head_dim) + " over documents of " +
               std::to_string(c.length) + " tokens (" + entry.refusal + "); using the slower built-in kernel");
      said = true;
    }
    return entries.emplace(c, std::move(entry)).first->second;
  }

  static Entry build(const AttentionCase& c, const std::shared_ptr<Handle>& handle) {
    Entry entry{handle, std::make_unique<fe::graph::Graph>(), 0, ""};
    entry.graph->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (c.backward) {
      add_backward(*entry.graph, c);
    } else {
      add_forward(*entry.graph, c);
    }
    fe::error_t status = entry.graph->build(handle->value, {fe::HeurMode_t::A});
    if (status.is_good()) status = entry.graph->get_workspace_size(entry.workspace);
    if (status.is_good()) return entry;
    return {.refusal = status.get_message()};
  }

  // Members are destroyed from the last on: graphs before the handles that only they hold.
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
                              cudaStream_t stream) {
  const State::Entry& entry = state_->get(c);
  ensure(entry.graph != nullptr, "cuDNN takes the attention it is asked for");
  std::unordered_map<int64_t, void*> pointers;
  for (int tensor = 0; tensor < kAttentionTensors; ++tensor) {
    if (is_used(tensor, c.backward)) pointers[id_of(tensor)] = data[static_cast<size_t>(tensor)];
  }
  CUDA_CHECK(cudnnSetStream(entry.handle->value, stream));
  fe::error_t status = entry.graph->execute(entry.handle->value, pointers, workspace);
  if (status.is_bad()) fail_internal("cuDNN attention failed: " + status.get_message());
}

}  // namespace megatrain

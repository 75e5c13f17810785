// A mixture of experts: a router in the block's first record, followed by records of consecutive experts.
//
//   y = residual + sum over the token's chosen experts of weight * expert(x)        x, y: (T, H)
//
// With one record of experts, everything is computed in one part. With several, each record is a group of experts and a
// part of the phase. The router comes first, then one group after the other; the last group completes y. The number of
// groups does not change the result (ops/experts.h). The router's choices are kept for backward at every level. All
// other data derived from them is handed from part to part with the micro-batch. Gradients of frozen tensors are not
// computed.
//
// With a norm of its own the router reads the residual stream (Channel::Call::stream) instead of x. Learned factors of
// the experts multiply the weights that the router gives them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "megatrain/model/layers/channel.h"
#include "megatrain/model/layers/channels/expert_linear.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/norm.h"

namespace megatrain {

class Experts final : public Channel {
 public:
  struct Records {
    LinearTensors first;                         // the block's, with the router
    const LayerLayout* buffers = nullptr;        // the bias of a sigmoid router's choice, if there is one
    std::span<const LayerLayout> groups;         // of experts
    std::span<const LayerLayout> adapters = {};  // theirs, if they have any
  };
  // `norm` is that of the router's input, if the first record has its weight.
  Experts(const ExpertsConfig& config, DType dtype, const Records& records, NormShape norm = {});

  // Level `products` keeps no more than level 0, since the experts' matmuls are recomputed at every level.
  std::vector<std::string> keep_levels() const override { return {"products"}; }
  std::unique_ptr<Channel::Work> carve(const Space& space) const override;
  bool takes_all_tokens() const override { return true; }
  bool has_buffers() const override { return choice_bias_.offset >= 0; }
  int64_t own_records() const override { return std::ssize(groups_); }
  int64_t own_adapters() const override { return adapted_ ? std::ssize(groups_) : 0; }
  int64_t router_bytes() const override { return 8 * RouterCounts::words(c_.count, c_.chosen); }
  void forward(const Binding& at, const Call& call, const View& x, const View& residual, const View& y,
               bool repeated) const override;
  void recompute(const Binding& at, const Call& call, const View& x) const override;
  void recompute_output(const Binding& at, const Call& call, const View& x, const View& residual,
                        const View& y) const override;
  void backward(const Binding& at, const Call& call, const View& x, const View& grad_y, const View& grad_x,
                bool output_made, bool add) const override;
  void forward_own(const Call& call, int64_t own, const View& x, const View& residual, const View& y) const override;
  void backward_own(const Call& call, int64_t own, const View& x, const View& grad_y,
                    const View& grad_x) const override;
  std::unique_ptr<Channel::Work> carve_decode(Carver& carver, int64_t tokens) const override;
  bool decode_chooses(int64_t tokens) const override;
  void decode(const Binding& at, const Decode& args) const override;

 private:
  // Consecutive experts of one record.
  struct Group {
    int64_t first, count;
    int64_t elements;  // of the record
    ExpertLinear gate_up, down;
  };
  struct Routing;  // the router's choices, and the row of each pair of a token and its expert
  struct Rows;     // buffers of a group's rows
  struct Work;
  enum Level : int64_t { matmuls = 1, everything };  // only `everything` keeps the router's logits
  bool in_parts() const { return groups_.size() > 1; }
  Routing carve_routing(Carver& work, Carver& chosen, Carver& logits, int64_t tokens) const;
  Rows carve_rows(Carver& work, int64_t tokens) const;
  std::byte* carve_adapters(Carver& carver, int64_t tokens) const;  // AdapterBinding::scratch
  int64_t most_rows(int64_t tokens) const;
  ExpertRows rows_of(const Group& group, const Routing& routing, int64_t tokens) const;
  View router_input(const Binding& at, const Routing& routing, const View& x, const View& stream) const;
  void route(const Binding& at, const Routing& routing, std::byte* buffers) const;
  void router_backward(const Binding& at, const Call& call, const View& x, const View& grad_x) const;
  void count(const Binding& at, const Routing& routing, const Call& call) const;
  void sort(const Binding& at, const Routing& routing, int64_t tokens) const;
  void gather(const Binding& at, const ExpertRows& rows, const Routing& routing, const View& from,
              const View& to) const;
  void group_forward(const Binding& record, size_t index, const View& x, const View& residual, const View& y,
                     const Work& work) const;
  void fetch_chosen(Stream& stream, const Decode& args, const Routing& routing) const;

  ExpertsConfig c_;
  DType dtype_;
  Norm router_norm_;
  Linear router_;
  WeightOperand factors_;
  WeightOperand choice_bias_;
  std::vector<Group> groups_;
  bool adapted_;
};

}  // namespace megatrain

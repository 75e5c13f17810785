// The block with a mixture of experts in the place of its MLP: one phase over a record of attention, norms and router
// and records of consecutive experts. With one of these it is computed at once; with several, groups of experts, it
// runs in parts: attention and router, then a group after the other, the last of which completes y.
//
//   h = x + the attention half (attention_half.h)           x, h, y: (T, H)
//   y = h + sum over the token's chosen experts of weight * expert(norm(h))
//
// How many groups there are changes no bit (ops/experts.h). The router's choice is kept for backward whatever else is;
// between parts a micro-batch carries the rest that was made of it. Gradients of frozen tensors are not computed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "megatrain/model/attention_half.h"

namespace megatrain {

// The numbers that its tensors carry as their operand beside those of BlockOperand, of which the first record has those
// of attention and post_norm. The last four are repeated for every expert of a record, in this order.
struct ExpertOperand {
  enum : int {
    router = BlockOperand::sinks + 1,  // (E, H)
    router_bias,                       // (E)
    gate_up,                           // (2F, H) gate, then up
    gate_up_bias,                      // (2F)
    down,                              // (H, F)
    down_bias,                         // (H)
  };
};

// The products of one kind of a record's experts.
struct ExpertLinear {
  WeightOperand weight, bias;  // of the first expert
  int64_t stride = 0;          // elements of the record's weights from one expert to the next

  // The gradients of consecutive experts that are trained alike: of some rows of the weight, or of the bias alone.
  struct Gradients {
    int64_t first, count;  // experts
    int64_t begin, rows;   // of the weight
    int64_t weight, bias;  // offsets in the record's gradients, of the first expert; -1: frozen, or there is none
    int64_t stride;        // elements from one expert to the next
  };
  std::vector<Gradients> gradients;

  ExpertWeights weights(std::byte* slab) const { return {weight.weight(slab), stride}; }
  ExpertWeights biases(std::byte* slab) const { return {bias.weight(slab), stride}; }
};
ExpertLinear find_expert_linear(const LayerLayout& record, int64_t experts, int weight, int bias);

struct ExpertBlockShape {
  AttentionHalfShape attention;
  ExpertsConfig experts;
  int64_t ff() const { return experts.ff; }
};

class ExpertBlock final : public Phase {
 public:
  ExpertBlock(const ExpertBlockShape& shape, std::span<const LayerLayout> records);

  std::vector<int64_t> records() const override;
  std::vector<std::vector<int64_t>> parts() const override;
  int64_t in_width() const override { return s_.attention.hidden; }
  int64_t out_width() const override { return s_.attention.hidden; }
  int64_t workspace_bytes() const override;
  int64_t kept_bytes(Keep keep) const override;
  int64_t carried_bytes() const override;
  int64_t router_bytes() const override { return 8 * RouterCounts::words(s_.experts.count, s_.experts.chosen); }
  void forward(Ops& ops, Stream& stream, const Forward& args) const override;
  void backward(Ops& ops, Stream& stream, const Backward& args) const override;
  void recompute(Ops& ops, Stream& stream, const Backward& args) const override;
  int64_t cache_width() const override { return s_.attention.kv_dim(); }
  int64_t decode_workspace_bytes(int64_t tokens) const override;
  bool decode_chooses(int64_t record, int64_t tokens) const override;
  void decode(Ops& ops, Stream& stream, const Decode& args) const override;

 private:
  // Consecutive experts of one record.
  struct Group {
    int64_t first, count;
    int64_t elements;  // of the record
    ExpertLinear gate_up, down;
  };
  struct Routing;  // what the router chose, and where each pair's row is
  struct Rows;     // buffers of a group's rows
  struct Work;
  struct DecodeWork;
  bool in_parts() const { return groups_.size() > 1; }
  Work carve(std::byte* workspace, std::byte* carried, Keep keep, std::byte* kept, bool kept_choice) const;
  DecodeWork carve_decode(std::byte* workspace, int64_t tokens) const;
  Routing carve_routing(Carver& work, Carver& chosen, Carver& logits, int64_t tokens) const;
  Rows carve_rows(Carver& work, int64_t tokens) const;
  int64_t most_rows(int64_t tokens) const;
  ExpertRows rows_of(const Group& group, const Routing& routing, int64_t tokens) const;
  void project_out(Ops& ops, Stream& stream, std::byte* slab, const View& x, const AttentionHalf::Work& work) const;
  void logits_of(Ops& ops, Stream& stream, std::byte* slab, const View& normed, const Routing& routing) const;
  void route(Ops& ops, Stream& stream, const Routing& routing) const;
  void count(Ops& ops, Stream& stream, const Routing& routing, const Forward& args) const;
  void sort(Ops& ops, Stream& stream, const Routing& routing, int64_t tokens) const;
  void group_forward(Ops& ops, Stream& stream, std::byte* slab, size_t index, const View& normed, const View& h,
                     const View& y, const Routing& routing, const Rows& rows) const;
  void group_backward(Ops& ops, Stream& stream, const Backward& args, const Work& work, size_t index) const;
  void fetch_chosen(Stream& stream, const Decode& args, const Routing& routing) const;
  void first_backward(Ops& ops, Stream& stream, const Backward& args, const Work& work) const;

  ExpertBlockShape s_;
  AttentionHalf attention_;
  WeightOperand post_norm_;
  LinearOperands router_;
  std::vector<Group> groups_;
};

std::vector<std::unique_ptr<const Phase>> expert_phases(const ModelConfig& config, const ModelShape& shape,
                                                        int64_t layer, std::span<const LayerLayout> records);

}  // namespace megatrain

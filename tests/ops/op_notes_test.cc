// Recorded calls can be replayed on other memory.
#include "megatrain/ops/op_notes.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "megatrain/device/call_timer.h"
#include "megatrain/ops/note_cost.h"
#include "megatrain/ops/note_memory.h"

namespace megatrain {

namespace {

struct Bench {
  std::unique_ptr<Device> device = make_cpu_device();
  std::unique_ptr<Stream> stream = device->make_stream("compute");
  std::unique_ptr<Ops> ops = make_cpu_ops({.threads = 1});
  NoteMemory memory{*device, *stream};
};

View nowhere(int which, int64_t rows, int64_t cols, int64_t stride = 0) {
  return {reinterpret_cast<void*>(static_cast<uintptr_t>(which) << 40), DType::bf16, rows, cols,
          stride ? stride : cols};
}

}  // namespace

TEST(OpNotes, WritesDownWhatItIsGivenInOrder) {
  Bench bench;
  OpNotes notes;
  notes.linear_forward(*bench.stream, {.x = nowhere(1, 4, 8),
                                       .weight = nowhere(2, 16, 8),
                                       .bias = {},
                                       .residual = nowhere(3, 4, 16),
                                       .out = nowhere(4, 4, 16)});
  notes.gated_forward(*bench.stream, {.gate_up = nowhere(1, 4, 16), .out = nowhere(2, 4, 8)});
  const std::vector<OpNote> taken = notes.take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(note_text(taken[0]), "linear 4x8 bf16 by 16x8 bf16 + residual");
  EXPECT_EQ(note_flops(taken[0]), 2.0 * 4 * 8 * 16);
  EXPECT_EQ(note_bytes(taken[0]), 2.0 * (4 * 8 + 16 * 8 + 2 * 4 * 16));
  EXPECT_EQ(note_flops(taken[1]), 0);
  EXPECT_TRUE(notes.take().empty());
}

TEST(OpNotes, ToldApartByWhatTheyCompute) {
  const Rope rope{.x = nowhere(1, 4, 32), .heads = 2, .head_dim = 16, .rotary_dim = 12, .backward = true};
  EXPECT_EQ(note_text(rope), "rope 4x32 bf16 of 12/16 backward");
  EXPECT_EQ(note_bytes(rope), 2.0 * 2 * 4 * 2 * 12);
  const GatedForward geglu{.gate_up = nowhere(1, 4, 16), .out = nowhere(2, 4, 8), .activation = Activation::gelu_tanh};
  EXPECT_EQ(note_text(geglu), "geglu 4x16 bf16");
  const RmsNormForward norm{.x = nowhere(1, 4, 16),
                            .weight = nowhere(2, 1, 16),
                            .weight_offset = 1,
                            .residual = nowhere(3, 4, 16),
                            .out = nowhere(4, 4, 16)};
  EXPECT_EQ(note_text(norm), "rmsnorm 4x16 bf16 + residual");
  EXPECT_EQ(note_bytes(norm), 2.0 * (3 * 4 * 16 + 16));
  const DoraFactors factors{.weight = nowhere(1, 16, 8),
                            .a = nowhere(2, 4, 8),
                            .b = nowhere(3, 16, 4),
                            .magnitude = nowhere(4, 1, 16),
                            .factors = matrix(nowhere(5, 1, 16).data, DType::f32, 1, 16),
                            .inv_norms = {}};
  EXPECT_EQ(note_text(factors), "dora factors 16x8 bf16, rank 4");
  EXPECT_EQ(note_bytes(factors), 2.0 * (16 * 8 + 4 * 8 + 16 * 4 + 16) + 4 * 16);
  const ScaleColumns columns{.x = nowhere(1, 4, 16),
                             .factors = factors.factors,
                             .times = {},
                             .bias = nowhere(2, 1, 16),
                             .residual = {},
                             .out = nowhere(3, 4, 16)};
  EXPECT_EQ(note_text(columns), "scale columns 4x16 bf16 + bias");
  EXPECT_EQ(note_bytes(columns), 2.0 * (2 * 4 * 16 + 16) + 4 * 16);
}

TEST(NoteMemory, PlacedCallsOfDoraRun) {
  Bench bench;
  const auto factors =
      std::get<DoraFactors>(bench.memory.place(DoraFactors{.weight = nowhere(1, 16, 8),
                                                           .a = nowhere(2, 4, 8),
                                                           .b = nowhere(3, 16, 4),
                                                           .magnitude = nowhere(4, 1, 16),
                                                           .factors = matrix(nowhere(5, 1, 1).data, DType::f32, 1, 16),
                                                           .inv_norms = {}}));
  run_note(*bench.ops, *bench.stream, factors);
  bench.stream->synchronize();
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isfinite(factors.factors.as<float>()[i]));
  const auto columns = std::get<ScaleColumns>(
      bench.memory.place(ScaleColumns{.x = nowhere(1, 4, 16),
                                      .factors = matrix(nowhere(5, 1, 1).data, DType::f32, 1, 16),
                                      .times = nowhere(6, 4, 16),
                                      .bias = {},
                                      .residual = nowhere(7, 4, 16),
                                      .out = nowhere(3, 4, 16)}));
  run_note(*bench.ops, *bench.stream, columns);
  ASSERT_NO_THROW(bench.stream->synchronize());
}

TEST(NoteMemory, PlacesEveryOperandApartAndAligned) {
  Bench bench;
  View x = nowhere(1, 5, 8, 12);
  x.data = static_cast<std::byte*>(x.data) + 24;
  const OpNote note = LinearForward{
      .x = x, .weight = nowhere(2, 16, 8), .bias = nowhere(3, 1, 16), .residual = {}, .out = nowhere(4, 5, 16)};
  const auto placed = std::get<LinearForward>(bench.memory.place(note));
  EXPECT_EQ(note_text(placed), note_text(note));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(placed.x.data) % 256, 24u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(placed.out.data) % 256, 0u);
  EXPECT_TRUE(placed.residual.empty());
  EXPECT_GE(placed.weight.as<std::byte>(), placed.x.as<std::byte>() + 5 * 12 * 2);
}

TEST(NoteMemory, EveryPlacedCallComputesFiniteNumbers) {
  Bench bench;
  const AttentionShape shape{.tokens = 12, .heads = 4, .kv_heads = 2, .head_dim = 8, .window = 0, .scale = 0.35f};
  const Documents documents{.begin = nullptr, .count = 2, .longest = 6, .uniform = true};
  const OpNote note = AttentionForward{.shape = shape,
                                       .documents = documents,
                                       .q = nowhere(1, 12, 32, 64),
                                       .k = nowhere(2, 12, 16, 64),
                                       .v = nowhere(3, 12, 16, 64),
                                       .out = nowhere(4, 12, 32),
                                       .lse = nullptr};
  const auto attention = std::get<AttentionForward>(bench.memory.place(note));
  run_note(*bench.ops, *bench.stream, attention);
  bench.stream->synchronize();
  double sum = 0;
  for (int64_t i = 0; i < attention.out.elements(); ++i) sum += std::abs(to_float(attention.out.as<bf16>()[i]));
  EXPECT_TRUE(std::isfinite(sum));
  EXPECT_GT(sum, 0);

  const OpNote loss = CrossEntropy{.logits = nowhere(1, 3, 50), .scale = 1.0f, .backward = true};
  const auto cross_entropy = std::get<CrossEntropy>(bench.memory.place(loss));
  run_note(*bench.ops, *bench.stream, cross_entropy);
  bench.stream->synchronize();
  for (int t = 0; t < 3; ++t) {
    EXPECT_GT(cross_entropy.loss[t], 3.0f);
    EXPECT_LT(cross_entropy.loss[t], 5.0f);  // about log(50)
  }

  const auto norm = std::get<RmsNormForward>(bench.memory.place(RmsNormForward{.x = nowhere(1, 4, 16),
                                                                               .weight = nowhere(2, 1, 16),
                                                                               .weight_offset = 1,
                                                                               .eps = 1e-6f,
                                                                               .residual = nowhere(3, 4, 16),
                                                                               .out = nowhere(4, 4, 16)}));
  run_note(*bench.ops, *bench.stream, norm);
  bench.stream->synchronize();
  for (int64_t i = 0; i < norm.out.elements(); ++i) EXPECT_TRUE(std::isfinite(to_float(norm.out.as<bf16>()[i])));
}

namespace {

const int32_t* numbers_nowhere() { return static_cast<const int32_t*>(nowhere(90, 1, 1).data); }

// 3 of 6 experts, for 20 tokens with 2 choices each.
const ExpertRows kThreeExperts{
    .begin = numbers_nowhere(), .origin = numbers_nowhere(), .experts = 3, .most = 33, .expected = 20};

ExpertWeights nowhere_by_expert(int which, int64_t rows, int64_t cols) {
  return {.first = nowhere(which, rows, cols), .stride = rows * cols + 8};
}

View as_f32(View view) {
  view.dtype = DType::f32;
  return view;
}

std::vector<OpNote> expert_notes() {
  const View logits = as_f32(nowhere(1, 20, 6));
  ExpertWeights grad_weight = nowhere_by_expert(5, 16, 8), grad_bias = nowhere_by_expert(6, 1, 16);
  for (ExpertWeights* grads : {&grad_weight, &grad_bias}) grads->first = as_f32(grads->first);
  const CombineRows combine{.weights = reinterpret_cast<const float*>(numbers_nowhere()),
                            .choices = 2,
                            .first_expert = 2,
                            .rows = kThreeExperts,
                            .x = nowhere(1, 33, 8),
                            .from = as_f32(nowhere(2, 20, 8)),
                            .out = nowhere(3, 20, 8)};
  CombineRows descending = combine;
  descending.weights = nullptr;
  descending.descending = true;
  return {Route{.logits = logits, .choices = 2},
          RouteBackward{.logits = logits,
                        .choices = 2,
                        .grad_probability = as_f32(nowhere(2, 1, 6)),
                        .grad_squared_lse = 0.1f,
                        .counted = numbers_nowhere(),
                        .grad_logits = nowhere(3, 20, 6)},
          SortByExpert{.pairs = 40, .count = 6},
          GatherRows{.x = nowhere(1, 20, 8), .choices = 2, .rows = kThreeExperts, .out = nowhere(2, 33, 8)},
          ExpertsForward{.rows = kThreeExperts,
                         .x = nowhere(1, 33, 8),
                         .weight = nowhere_by_expert(2, 16, 8),
                         .bias = nowhere_by_expert(3, 1, 16),
                         .out = nowhere(4, 33, 16)},
          ExpertsBackwardInput{.rows = kThreeExperts,
                               .grad_out = nowhere(1, 33, 16),
                               .weight = nowhere_by_expert(2, 16, 8),
                               .grad_x = nowhere(3, 33, 8)},
          ExpertsBackwardWeight{.rows = kThreeExperts,
                                .grad_out = nowhere(1, 33, 16),
                                .x = nowhere(2, 33, 8),
                                .grad_weight = grad_weight,
                                .grad_bias = grad_bias,
                                .accumulate = true},
          ExpertsGated{.rows = kThreeExperts, .gate_up = nowhere(1, 33, 16), .out = nowhere(2, 33, 8), .gate = {}},
          ExpertsGatedBackward{.rows = kThreeExperts,
                               .gate_up = nowhere(1, 33, 16),
                               .grad_act = nowhere(2, 33, 8),
                               .grad_y = nowhere(3, 33, 4),
                               .bias = nowhere_by_expert(4, 1, 4),
                               .gate = {Activation::gelu_sigmoid, 7.0f, 1.0f}},
          combine,
          descending,
          CountExperts{.counted = nullptr, .logits = logits, .choices = 2}};
}

}  // namespace

TEST(OpNotes, OfExpertsCostWhatEqualLoadsWould) {
  const std::vector<OpNote> notes = expert_notes();
  const std::vector<std::string> texts = {"route 20x6 fp32 to 2, softmax of chosen",
                                          "route backward 20x6 fp32 to 2, softmax of chosen, balanced",
                                          "sort 40 rows by 6 experts",
                                          "gather 20 rows of 3 experts from 20x8 bf16",
                                          "experts 20 rows of 3 experts by 16x8 bf16 + bias",
                                          "experts grad input 20 rows of 3 experts by 16x8 bf16",
                                          "experts grad weight 20 rows of 3 experts to 16x8 fp32 and bias, added",
                                          "swiglu 20 rows of 3 experts 33x16 bf16",
                                          "geglu by sigmoid, limited backward 20 rows of 3 experts 33x16 bf16 and bias",
                                          "combine 20 rows of 3 experts to 20x8 bf16 from fp32, weighted",
                                          "combine 20 rows of 3 experts to 20x8 bf16 from fp32, descending",
                                          "count experts 20x6 fp32 to 2"};
  const std::vector<bool> forward = {true, false, true, true, true, false, false, true, false, true, false, false};
  ASSERT_EQ(notes.size(), texts.size());
  for (size_t i = 0; i < notes.size(); ++i) {
    EXPECT_EQ(note_text(notes[i]), texts[i]);
    EXPECT_EQ(is_forward_call(notes[i]), forward[i]) << texts[i];
    const bool matmul = i >= 4 && i <= 6;
    EXPECT_EQ(note_flops(notes[i]), matmul ? 2.0 * 20 * 16 * 8 : 0.0) << texts[i];
    EXPECT_GT(note_bytes(notes[i]), 0) << texts[i];
  }
  EXPECT_EQ(note_bytes(notes[3]), 2.0 * 20 * (8 + 8));
  EXPECT_EQ(note_bytes(notes[4]), 2.0 * (20 * (8 + 16) + 3 * (16 * 8 + 16)));
}

TEST(NoteMemory, EveryPlacedCallOfExpertsRuns) {
  Bench bench;
  for (const OpNote& note : expert_notes()) {
    const OpNote placed = bench.memory.place(note);
    EXPECT_EQ(note_text(placed), note_text(note));
    run_note(*bench.ops, *bench.stream, placed);
    ASSERT_NO_THROW(bench.stream->synchronize()) << note_text(note);
    if (const auto* forward = std::get_if<ExpertsForward>(&placed)) {
      double sum = 0;
      for (int64_t i = 0; i < 20 * 16; ++i) sum += std::abs(to_float(forward->out.as<bf16>()[i]));
      EXPECT_TRUE(std::isfinite(sum));
      EXPECT_GT(sum, 0);
      EXPECT_EQ(forward->rows.begin[3], 20);
    }
  }
}

namespace {

std::vector<OpNote> delta_notes() {
  const DeltaRuleShape shape{.tokens = 128, .key_heads = 1, .value_heads = 2, .key_dim = 32, .value_dim = 16};
  const Documents documents{.count = 2, .longest = 64, .uniform = true};
  const View x = nowhere(1, 128, 48), z = nowhere(2, 128, 48), y = nowhere(3, 128, 48), head = nowhere(4, 1, 16),
             key = nowhere(5, 128, 32, 96), value = nowhere(6, 128, 32, 96), gate = nowhere(7, 128, 2),
             sums = as_f32(nowhere(8, 1, 2)), wide = as_f32(nowhere(9, 128, 2)), taps = nowhere(10, 48, 4);
  return {ShortConvForward{.documents = documents, .x = x, .weight = taps, .out = y},
          ShortConvBackward{.documents = documents,
                            .x = x,
                            .weight = taps,
                            .grad_out = y,
                            .grad_x = z,
                            .grad_weight = {},
                            .accumulate = true},
          DeltaGatesForward{
              .a = gate, .b = gate, .a_log = nowhere(4, 1, 2), .dt_bias = nowhere(4, 1, 2), .g = wide, .beta = wide},
          DeltaGatesBackward{.a = gate,
                             .b = gate,
                             .a_log = nowhere(4, 1, 2),
                             .dt_bias = nowhere(4, 1, 2),
                             .grad_g = wide,
                             .grad_beta = wide,
                             .grad_a = gate,
                             .grad_b = gate,
                             .grad_a_log = sums,
                             .grad_dt_bias = sums,
                             .accumulate = true},
          DeltaRuleForward{.shape = shape,
                           .documents = documents,
                           .q = key,
                           .k = key,
                           .v = value,
                           .g = wide,
                           .beta = wide,
                           .out = value},
          DeltaRuleBackward{.shape = shape,
                            .documents = documents,
                            .q = key,
                            .k = key,
                            .v = value,
                            .g = wide,
                            .beta = wide,
                            .grad_out = value,
                            .grad_q = key,
                            .grad_k = key,
                            .grad_v = value,
                            .grad_g = wide,
                            .grad_beta = wide},
          GatedNormForward{.x = x, .z = z, .weight = head, .eps = 1e-6f, .out = y},
          GatedNormBackward{.x = x,
                            .z = z,
                            .weight = head,
                            .eps = 1e-6f,
                            .grad_out = y,
                            .grad_x = y,
                            .grad_z = z,
                            .grad_weight = as_f32(head),
                            .accumulate = false}};
}

}  // namespace

TEST(OpNotes, OfADeltaNetCostTheBytesOfTheirOperandsAndScratch) {
  const std::vector<OpNote> notes = delta_notes();
  const std::vector<std::string> texts = {"short conv 128x48 bf16 by 4",
                                          "short conv backward 128x48 bf16 by 4, frozen, added",
                                          "delta gates 128x2 bf16",
                                          "delta gates backward 128x2 bf16, added",
                                          "delta rule 2 x 64, 1/2 heads of 32/16 bf16",
                                          "delta rule backward 2 x 64, 1/2 heads of 32/16 bf16",
                                          "gated norm 128x48 bf16 by 16",
                                          "gated norm backward 128x48 bf16 by 16"};
  ASSERT_EQ(notes.size(), texts.size());
  for (size_t i = 0; i < notes.size(); ++i) {
    EXPECT_EQ(note_text(notes[i]), texts[i]);
    EXPECT_EQ(is_forward_call(notes[i]), i % 2 == 0) << texts[i];
    EXPECT_EQ(note_flops(notes[i]), 0) << texts[i];
  }
  EXPECT_EQ(note_bytes(notes[0]), 2.0 * (2 * 128 * 48 + 48 * 4));
  EXPECT_EQ(note_bytes(notes[6]), 2.0 * (3 * 128 * 48 + 16));
  const double operands = 2.0 * 4 * 128 * 32 + 4.0 * 2 * 128 * 2;
  EXPECT_EQ(note_bytes(notes[4]), operands + 4.0 * 128 * 2 * (3 * 32 + 4 * 16 + 2 * 32 * 16 / 64));
  EXPECT_GT(note_bytes(notes[5]), 2 * note_bytes(notes[4]));
}

TEST(NoteMemory, EveryPlacedCallOfADeltaNetComputesFiniteNumbers) {
  Bench bench;
  for (const OpNote& note : delta_notes()) {
    const OpNote placed = bench.memory.place(note);
    EXPECT_EQ(note_text(placed), note_text(note));
    run_note(*bench.ops, *bench.stream, placed);
    ASSERT_NO_THROW(bench.stream->synchronize()) << note_text(note);
    if (const auto* rule = std::get_if<DeltaRuleForward>(&placed)) {
      for (int64_t i = 0; i < 128 * 96 - 64; ++i)
        ASSERT_TRUE(std::isfinite(to_float(rule->out.as<bf16>()[i]))) << note_text(note);
    }
  }
}

namespace {

std::vector<OpNote> ssd_notes() {
  const SsdShape shape{.tokens = 128, .heads = 4, .groups = 2, .head_dim = 16, .state_dim = 32};
  const Documents documents{.count = 2, .longest = 64, .uniform = true};
  const View all = nowhere(1, 128, 192), x = all.slice_cols(0, 64), b = all.slice_cols(64, 64),
             c = all.slice_cols(128, 64), z = nowhere(2, 128, 64), dt = nowhere(3, 128, 4),
             wide = as_f32(nowhere(4, 128, 4)), more = as_f32(nowhere(5, 128, 4)), heads = nowhere(6, 1, 4),
             sums = as_f32(nowhere(7, 1, 4)), bias = nowhere(8, 1, 192), row = nowhere(9, 1, 64);
  return {
      ShortConvForward{
          .documents = documents, .x = all, .weight = nowhere(10, 192, 4), .bias = bias, .out = nowhere(11, 128, 192)},
      ShortConvBackward{.documents = documents,
                        .x = all,
                        .weight = nowhere(10, 192, 4),
                        .bias = bias,
                        .grad_out = nowhere(11, 128, 192),
                        .grad_x = nowhere(12, 128, 192),
                        .grad_weight = as_f32(nowhere(13, 192, 4)),
                        .grad_bias = as_f32(bias),
                        .accumulate = true},
      SsdGatesForward{.dt = dt, .a_log = heads, .dt_bias = heads, .limits = {}, .step = wide, .g = more},
      SsdGatesBackward{.dt = dt,
                       .a_log = heads,
                       .dt_bias = heads,
                       .limits = {},
                       .grad_step = wide,
                       .grad_g = more,
                       .grad_dt = dt,
                       .grad_a_log = sums,
                       .grad_dt_bias = sums,
                       .accumulate = true},
      SsdForward{.shape = shape,
                 .documents = documents,
                 .x = x,
                 .b = b,
                 .c = c,
                 .step = wide,
                 .g = more,
                 .skip = heads,
                 .out = z},
      SsdBackward{.shape = shape,
                  .documents = documents,
                  .x = x,
                  .b = b,
                  .c = c,
                  .step = wide,
                  .g = more,
                  .skip = heads,
                  .grad_out = z,
                  .grad_x = x,
                  .grad_b = b,
                  .grad_c = c,
                  .grad_step = wide,
                  .grad_g = more,
                  .grad_skip = sums,
                  .accumulate = false},
      GatedNormForward{.x = z, .z = x, .weight = row, .eps = 1e-6f, .group = 32, .gate_first = true, .out = z},
      GatedNormBackward{.x = z,
                        .z = x,
                        .weight = row,
                        .eps = 1e-6f,
                        .group = 32,
                        .gate_first = true,
                        .grad_out = z,
                        .grad_x = z,
                        .grad_z = x,
                        .grad_weight = as_f32(row),
                        .accumulate = false}};
}

}  // namespace

TEST(OpNotes, OfMamba2CostTheBytesOfTheirOperandsAndScratch) {
  const std::vector<OpNote> notes = ssd_notes();
  const std::vector<std::string> texts = {"short conv 128x192 bf16 by 4 + bias",
                                          "short conv backward 128x192 bf16 by 4 + bias, added",
                                          "ssd gates 128x4 bf16",
                                          "ssd gates backward 128x4 bf16, added",
                                          "ssd 2 x 64, 4/2 heads of 32/16 bf16",
                                          "ssd backward 2 x 64, 4/2 heads of 32/16 bf16",
                                          "gated norm 128x64 bf16 by 32, gated first",
                                          "gated norm backward 128x64 bf16 by 32, gated first"};
  ASSERT_EQ(notes.size(), texts.size());
  for (size_t i = 0; i < notes.size(); ++i) {
    EXPECT_EQ(note_text(notes[i]), texts[i]);
    EXPECT_EQ(is_forward_call(notes[i]), i % 2 == 0) << texts[i];
    EXPECT_EQ(note_flops(notes[i]), 0) << texts[i];
  }
  EXPECT_EQ(note_bytes(notes[0]), 2.0 * (2 * 128 * 192 + 192 * 4 + 192));
  EXPECT_EQ(note_bytes(notes[2]), 2.0 * 128 * 4 + 4.0 * 2 * 128 * 4);
  EXPECT_EQ(note_bytes(notes[4]),
            2.0 * 128 * (192 + 64) + 4.0 * 2 * 128 * 4 + 4.0 * 128 * 4 * (4.0 * 32 * 16 / kSsdChunk));
  EXPECT_GT(note_bytes(notes[5]), 2 * note_bytes(notes[4]));
}

TEST(NoteMemory, EveryPlacedCallOfMamba2ComputesFiniteNumbers) {
  Bench bench;
  for (const OpNote& note : ssd_notes()) {
    const OpNote placed = bench.memory.place(note);
    EXPECT_EQ(note_text(placed), note_text(note));
    run_note(*bench.ops, *bench.stream, placed);
    ASSERT_NO_THROW(bench.stream->synchronize()) << note_text(note);
    if (const auto* ssd = std::get_if<SsdForward>(&placed)) {
      for (int64_t i = 0; i < 128 * 64; ++i)
        ASSERT_TRUE(std::isfinite(to_float(ssd->out.as<bf16>()[i]))) << note_text(note);
    }
  }
}

TEST(CallTimer, MeasuresTheWorkAndNotTheCaller) {
  Bench bench;
  CallTimer timer(*bench.device, *bench.stream);
  auto& stream = static_cast<HostStream&>(*bench.stream);
  int calls = 0;
  const double s = timer.median_s(
      [&] {
        stream.run([&] {
          ++calls;
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
        });
      },
      3);
  EXPECT_EQ(calls, 5);
  EXPECT_GE(s, 3e-3);
  EXPECT_LT(s, 1.0);
}

}  // namespace megatrain

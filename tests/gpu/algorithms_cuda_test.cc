// The timed table of cuBLASLt algorithms.
#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/presets.h"
#include "megatrain/model/step_notes.h"
#include "megatrain/ops/note_memory.h"
#include "megatrain/ops/op_notes.h"
#include "tests/gpu/cuda_fixture.h"

namespace megatrain::testing {

namespace {

std::vector<OpNote> small_notes() {
  nlohmann::json json = *preset_config("qwen2.5-0.5b");
  json["num_hidden_layers"] = 1;
  json["vocab_size"] = 1024;
  return step_notes(parse_model_config(json, "small"),
                    {.sequences = 2, .seq_len = 512, .mlp_chunk = 1024, .head_chunk = 512})
      .recomputing();
}

// The result of the GEMM, on the same operands every time.
std::vector<std::byte> result_of(CudaFixture& cuda, Ops& ops, const OpNote& note) {
  NoteMemory memory(*cuda.device, *cuda.stream);
  const OpNote placed = memory.place(note);
  run_note(ops, *cuda.stream, placed);
  View out;
  if (const auto* a = std::get_if<LinearForward>(&placed)) out = a->out;
  if (const auto* a = std::get_if<LinearBackwardInput>(&placed)) out = a->grad_x;
  if (const auto* a = std::get_if<LinearBackwardWeight>(&placed)) out = a->grad_weight;
  std::vector<std::byte> bytes(static_cast<size_t>(out.bytes()));
  if (!out.empty()) cuda.stream->copy(bytes.data(), out.data, bytes.size());
  cuda.stream->synchronize();
  return bytes;
}

}  // namespace

TEST(CudaAlgorithms, EveryProductGetsOneAndTheMemoryIsGivenBack) {
  CudaFixture cuda;
  const int64_t before = cuda.device->ledger().bytes();
  const AlgorithmTable table = cuda.ops->tune(small_notes(), {});
  EXPECT_EQ(table.size(), 15u);  // forward, grad input, grad weight of qkv, o, gate_up, down and the head
  EXPECT_EQ(cuda.device->ledger().bytes(), before);
  EXPECT_EQ(cuda.ops->tune(small_notes(), {}), table);  // chosen once
}

TEST(CudaAlgorithms, ATableGivenToAnotherGivesItsBits) {
  CudaFixture cuda;
  const std::vector<OpNote> notes = small_notes();
  const AlgorithmTable table = cuda.ops->tune(notes, {});
  const std::unique_ptr<Ops> other = make_cuda_ops(*cuda.device);
  EXPECT_EQ(other->tune(notes, table), table);
  EXPECT_EQ(other->library(), cuda.ops->library());
  for (const OpNote& note : notes) EXPECT_EQ(result_of(cuda, *other, note), result_of(cuda, *cuda.ops, note));
}

TEST(CudaAlgorithms, RefusesOneThatTheLibraryDoesNotKnow) {
  CudaFixture cuda;
  AlgorithmTable table = cuda.ops->tune(small_notes(), {});
  for (const std::string& damaged : {std::string("zz"), std::string(table.begin()->second.size(), 'f')}) {
    table.begin()->second = damaged;
    const std::unique_ptr<Ops> other = make_cuda_ops(*cuda.device);
    try {
      other->tune(small_notes(), table);
      FAIL() << "was not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_NE(std::string(error.what()).find(table.begin()->first), std::string::npos) << error.what();
    }
  }
}

}  // namespace megatrain::testing

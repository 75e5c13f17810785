// Writes a model's logits as `megatrain generate` computes them, to compare with transformers (bench/gpu/serve.py).
//
//   write_logits MODEL IDS.jsonl OUT [--device D] [--precision P] [--memory.gpu SIZE] [--threads N]
//
// A line of IDS is {"ids": [...]} with at least two ids. The first half of the ids (rounded down) is fed like a prompt,
// in passes of many tokens. The rest is fed like an answer, one by one. OUT receives float32 rows of the vocabulary's
// size, line after line: one after the last id of the first half, and one after every id of the rest.
#include <algorithm>
#include <cstdio>
#include <fstream>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/cli/model_arguments.h"
#include "megatrain/dataset/json_rows.h"
#include "megatrain/inference/loaded_model.h"

namespace megatrain {
namespace {

std::vector<Prompt> read_ids(const std::string& path) {
  std::vector<Prompt> prompts;
  JsonRows rows(path);
  while (const auto row = rows.next()) {
    prompts.push_back({.ids = row->object.at("ids").get<std::vector<int32_t>>(), .max_tokens = 1});
    if (prompts.back().ids.size() < 2) fail_input(row->where + "it has fewer than two ids");
  }
  return prompts;
}

void write_logits(CachedForward& forward, std::span<const int32_t> ids, std::ofstream& out) {
  const size_t half = ids.size() / 2;
  for (size_t at = 0; at < ids.size();) {
    const size_t count = at < half ? std::min(half - at, static_cast<size_t>(forward.pass_tokens())) : 1;
    const std::span<const float> logits = forward.run({{.sequence = 0,
                                                        .position = static_cast<int64_t>(at),
                                                        .ids = ids.subspan(at, count),
                                                        .logits = at + count >= half}});
    out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
    at += count;
  }
}

int run(const Words& words) {
  const Arguments arguments(words, {.name = "generate", .options = with_loaded_model_options({})});
  if (arguments.plain().size() != 3) fail_config("usage: write_logits MODEL IDS.jsonl OUT [--device D] ...");
  const std::vector<Prompt> prompts = read_ids(arguments.plain()[1]);
  LoadedModel model(arguments.plain()[0], loaded_model_settings(arguments), "generate");
  CachedForward& forward = model.generator_for(prompts).forward();
  std::ofstream out(arguments.plain()[2], std::ios::binary);
  for (const Prompt& prompt : prompts) write_logits(forward, prompt.ids, out);
  if (!out.flush()) fail_io("could not write " + arguments.plain()[2]);
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int count, char** arguments) {
  try {
    return megatrain::run({arguments + 1, arguments + count});
  } catch (const megatrain::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}

// The first byte chooses between JSON and text, and the block size. Any bytes after it are read as files of samples,
// with the same result for every block size. Each sample is refused with an Error or becomes messages or text.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/dataset/sample_blocks.h"
#include "megatrain/dataset/sample_form.h"
#include "megatrain/dataset/sample_json.h"

namespace {

using namespace megatrain;

// Removed when the program ends.
struct ScratchFile {
  std::string path = (std::filesystem::temp_directory_path() / ("dataset_fuzz." + std::to_string(::getpid()))).string();
  ~ScratchFile() { std::filesystem::remove(path); }
};

using Seen = std::vector<std::tuple<int64_t, int64_t, std::string>>;

Seen read(const std::string& path, bool json, int64_t block_bytes) {
  Seen seen;
  SampleBlocks blocks({{path, json}, {path, json}}, {block_bytes, 256, 64});
  SampleBlock block;
  while (blocks.next(block)) {
    for (const RawSample& raw : block.samples) {
      seen.emplace_back(raw.file, raw.line, raw.bad.empty() ? std::string(block.text(raw)) : raw.bad);
    }
  }
  return seen;
}

void interpret(const std::string& text) {
  const nlohmann::ordered_json object = parse_sample_json(text);
  for (const DatasetForm form : {DatasetForm::detect, DatasetForm::messages, DatasetForm::sharegpt, DatasetForm::alpaca,
                                 DatasetForm::prompt, DatasetForm::text}) {
    try {
      const auto settled = SampleForm::settle(form, {}, object);
      if (!settled) continue;
      const Sample sample = settled->read(object, true);
      if (sample.kind == Sample::Kind::conversation && sample.messages.empty()) __builtin_trap();
      settled->read(object, false);
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchFile scratch;
  const std::string& path = scratch.path;
  if (size == 0) return 0;
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data) + 1, static_cast<int64_t>(size - 1));
  const bool json = data[0] % 8 != 0;
  try {
    const Seen seen = read(path, json, 100000);
    if (seen != read(path, json, 1 + data[0])) __builtin_trap();
    for (const auto& [file, line, text] : seen) {
      try {
        if (json) interpret(text);
      } catch (const Error& error) {
        if (error.code() != ExitCode::bad_input) throw;
      }
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) __builtin_trap();
  }
  return 0;
}

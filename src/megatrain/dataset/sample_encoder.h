// Encodes samples as entries of a SampleStore: token ids with a trained bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/dataset/sample_blocks.h"
#include "megatrain/dataset/sample_form.h"
#include "megatrain/dataset/sample_store.h"
#include "megatrain/dataset/tokenize_dataset.h"

namespace megatrain {

// A bad sample, with its file by number.
struct BadRecord {
  int32_t file = 0;
  int64_t line = 0;
  std::string what;
};

// Samples of one block, in order.
struct EncodedBlock {
  std::vector<uint32_t> entries;
  std::vector<SampleStore::Record> samples;  // ends count from the block's first entry
  std::vector<BadRecord> bad;
  int64_t trained_tokens = 0;
  SampleNotes notes;
};

// Thread-safe.
class SampleEncoder {
 public:
  // `form` is for JSON samples; documents need none.
  SampleEncoder(const TextCoder& model, const TokenizeOptions& options, std::optional<SampleForm> form);

  EncodedBlock encode(const SampleBlock& block) const;

 private:
  // Append a sample's entries and return its SampleStore::Kind. Error(bad_input) if the sample is bad.
  int32_t encode_one(std::string_view text, const RawSample& raw, EncodedBlock& out) const;
  void encode_document(std::string_view text, std::vector<uint32_t>& entries) const;
  void encode_continuation(const Sample& sample, std::vector<uint32_t>& entries) const;
  int32_t encode_conversation(Sample sample, EncodedBlock& out) const;
  RenderedChat render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools) const;
  int32_t shorten(Sample& sample, RenderedChat& chat, Encoding& encoding) const;
  void check_answers(const Sample& sample) const;
  void check_written(const RenderedChat& chat, const Sample& sample) const;
  void check_tokens(const RenderedChat& chat, const Sample& sample) const;

  const TextCoder& model_;
  const TokenizeOptions& options_;
  std::optional<SampleForm> form_;
  std::vector<std::string> unknown_tokens_;  // tokens that the template may write and the tokenizer lacks
};

}  // namespace megatrain

// A dataset to tokenised samples on disk: in parallel, in bounded memory, resumable, and once for the same input.
//
// Conversations are rendered by the chat template and encoded as they stand there. A token is trained when at least one
// of its bytes lies in a trained span (a token of no bytes: when it stands inside one), so a token that straddles a
// border is trained; transformers' assistant mask has the same rule. A message with "weight": 0 is not trained.
// Documents are encoded with the tokenizer's own special tokens, eos after them when it is not there; all is trained.
//
// The samples are the same bytes whatever the thread count and wherever tokenising was interrupted.
#pragma once

#include <csignal>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>

#include "megatrain/base/units.h"
#include "megatrain/chat/chat_template.h"
#include "megatrain/dataset/dataset.h"
#include "megatrain/dataset/sample_store.h"
#include "megatrain/io/json.h"
#include "megatrain/tokenizer/tokenizer.h"

namespace megatrain {

// What turns samples into ids.
struct TextCoder {
  const Tokenizer& tokenizer;
  std::string tokenizer_identity;               // a hash of what decides the ids
  const ChatTemplate* chat_template = nullptr;  // nothing: the model has none
  std::string template_identity;                // a hash of what decides the text
  int32_t eos = -1;                             // ends documents; -1: none
};

enum class TrainOn {
  assistant,  // every turn of the assistant
  last,       // its last turn
  all,        // every token
};
TrainOn train_on(std::string_view word);  // Error(bad_config) for an unknown one

// The date that templates print unless they are given another, so that the same input gives the same tokens on any day:
// 26 July 2024, noon.
std::tm default_template_date();

struct TokenizeOptions {
  std::string cache_directory;           // created if absent
  std::string cache_key = "data.cache";  // what names another directory, for messages
  int threads = 1;
  int64_t skip_bad = 0;  // so many bad samples are left out; one more is Error(bad_input) that names the first
  TrainOn train_on = TrainOn::assistant;
  nlohmann::ordered_json variables;                               // null, or an object: more variables for the template
  std::tm date = default_template_date();                         // for templates that print it
  std::function<void(double fraction, int64_t tokens)> progress;  // now and then, from the calling thread
  // Before it writes: bytes of files that are not in the cache yet, and what an earlier call has done; may throw.
  std::function<void(int64_t bytes, double fraction, int64_t tokens)> begins;
  const volatile std::sig_atomic_t* stop = nullptr;  // set: stop soon; what is done is kept and gone on with next time

  // The parts that work is cut in; none of them changes the result.
  int64_t block_bytes = 1 * kMiB;  // the first is done within a second or so, for the progress line
  double seconds_between_saves = 2;
  int64_t* peak_bytes_in_flight = nullptr;  // of input read and not yet written
};

// Samples of `cache_directory`/FINGERPRINT, made when they are not there. Nothing when it was stopped.
//
// Error(bad_input): bad samples beyond those tolerated, no sample at all, a form that cannot be told, conversations for
// a model without a template, a file that changed while being read.
std::optional<SampleStore> tokenize(const Dataset& dataset, const TextCoder& model, const TokenizeOptions& options);

}  // namespace megatrain

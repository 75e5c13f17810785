// Tokenizes a dataset into a store on disk: in parallel, in bounded memory, resumable, and only once for the same
// input.
//
// Conversations are rendered by the chat template, and the text is encoded without adding special tokens. A token is
// trained if at least one of its bytes is in a trained span. So a token that straddles a border is trained. A token of
// no bytes is trained if it is inside a span. This is also the rule of transformers' assistant mask. A message with
// "weight": 0 is not trained. Documents are encoded with the tokenizer's own special tokens, followed by eos if it is
// not there. All of a document is trained.
//
// The samples are the same bytes for any number of threads, and wherever tokenizing was interrupted.
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

// What turns samples into token ids.
struct TextCoder {
  const Tokenizer& tokenizer;
  std::string tokenizer_identity;               // a hash of everything that decides the ids
  const ChatTemplate* chat_template = nullptr;  // null: the model has none
  std::string template_identity;                // a hash of everything that decides the text
  int32_t eos = -1;                             // ends documents; -1: none
};

enum class TrainOn {
  assistant,  // every turn of the assistant
  last,       // its last turn
  all,        // every token
};
TrainOn train_on(std::string_view word);  // Error(bad_config) for an unknown one

// The date for templates that print it, unless another is given: 26 July 2024, noon. It is fixed so that the same input
// gives the same tokens on any day.
std::tm default_template_date();

struct TokenizeOptions {
  std::string cache_directory;           // created if absent
  std::string cache_key = "data.cache";  // the key that sets another directory, for messages
  int threads = 1;
  // How many bad samples may be left out. One more is Error(bad_input), which names the first.
  int64_t skip_bad = 0;
  TrainOn train_on = TrainOn::assistant;
  int64_t keep_answer_within = 0;    // tokens to which longer conversations are shortened (keep_answer.h); 0: they stay
  nlohmann::ordered_json variables;  // null, or an object with more template variables
  std::tm date = default_template_date();                         // for templates that print it
  std::function<void(double fraction, int64_t tokens)> progress;  // called now and then, on the calling thread
  // Called before anything is written, with the bytes that are not in the cache yet and the progress of an earlier
  // call; may throw.
  std::function<void(int64_t bytes, double fraction, int64_t tokens)> begins;
  // Set to stop soon. Finished work is kept, and the next call resumes from it.
  const volatile std::sig_atomic_t* stop = nullptr;

  // How work is divided; none of this changes the result.
  int64_t block_bytes = 1 * kMiB;  // small, so that the progress line starts within a second or so
  double seconds_between_saves = 2;
  int64_t* peak_bytes_in_flight = nullptr;  // input read and not yet written
};

// Opens the store in `cache_directory` for these inputs, and makes it first if it does not exist. Empty if it was
// stopped.
//
// Error(bad_input) for more bad samples than tolerated, no sample at all, an undetectable form, conversations for a
// model without a chat template, or a file that changed while it was read.
std::optional<SampleStore> tokenize(const Dataset& dataset, const TextCoder& model, const TokenizeOptions& options);

}  // namespace megatrain

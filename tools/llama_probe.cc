// What llama.cpp makes of a GGUF file: tokens, logits and a greedy answer. Built by tools/check_gguf against
// llama.cpp's own header and libraries; not part of megatrain.
//
//   llama_probe FILE.gguf ASKED.json
//
// ASKED has "texts", "ids" with "from" (logits are returned for the ids from that index on), "prompt", and the length
// of its "answer". Prints one JSON object with "tokens", "logits" (one row after the other) and "answer".
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <llama.h>
#include <nlohmann/json.hpp>

namespace {

using Ids = std::vector<llama_token>;

Ids tokens_of(const llama_vocab* vocab, const std::string& text) {
  Ids ids(text.size() + 8);
  ids.resize(static_cast<size_t>(llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), ids.data(),
                                                static_cast<int32_t>(ids.size()), true, true)));
  return ids;
}

llama_context* open_context(llama_model* model) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 256;
  params.n_batch = 256;
  params.n_threads = params.n_threads_batch = 1;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.swa_full = true;
  return llama_init_from_model(model, params);
}

// Appends the row of logits after each id from `from` on.
void feed(llama_context* context, const Ids& ids, size_t first, size_t from, size_t vocab, std::vector<float>& rows) {
  llama_batch batch = llama_batch_init(static_cast<int32_t>(ids.size()), 0, 1);
  for (size_t i = first; i < ids.size(); ++i) {
    const auto at = static_cast<size_t>(batch.n_tokens++);
    batch.token[at] = ids[i];
    batch.pos[at] = static_cast<llama_pos>(i);
    batch.n_seq_id[at] = 1;
    batch.seq_id[at][0] = 0;
    batch.logits[at] = static_cast<int8_t>(i >= from);
  }
  if (llama_decode(context, batch) != 0) std::exit(1);
  for (size_t i = std::max(first, from); i < ids.size(); ++i) {
    const float* row = llama_get_logits_ith(context, static_cast<int32_t>(i - first));
    rows.insert(rows.end(), row, row + vocab);
  }
  llama_batch_free(batch);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  llama_backend_init();
  llama_model_params params = llama_model_default_params();
  llama_model* model = llama_model_load_from_file(arguments[1], params);
  if (model == nullptr) return 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const auto rows = static_cast<size_t>(llama_vocab_n_tokens(vocab));
  nlohmann::json asked, told;
  std::ifstream(arguments[2]) >> asked;
  told["tokens"] = nlohmann::json::array();
  for (const std::string text : asked.at("texts")) told["tokens"].push_back(tokens_of(vocab, text));

  std::vector<float> logits;
  llama_context* context = open_context(model);
  feed(context, asked.at("ids").get<Ids>(), 0, asked.at("from").get<size_t>(), rows, logits);
  told["logits"] = logits;
  llama_free(context);

  context = open_context(model);
  Ids ids = asked.at("prompt").get<Ids>();
  const size_t prompt = ids.size();
  for (size_t first = 0; ids.size() < prompt + asked.at("answer").get<size_t>(); first = ids.size() - 1) {
    std::vector<float> row;
    feed(context, ids, first, ids.size() - 1, rows, row);
    ids.push_back(static_cast<llama_token>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  told["answer"] = Ids(ids.begin() + static_cast<std::ptrdiff_t>(prompt), ids.end());
  std::printf("%s\n", told.dump().c_str());
  llama_free(context);
  llama_model_free(model);
}

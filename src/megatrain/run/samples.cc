#include "megatrain/run/samples.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/base/work.h"
#include "megatrain/host/memory.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/line_file.h"
#include "megatrain/io/line_reader.h"
#include "megatrain/io/replace.h"

namespace megatrain {

Samples::Samples(std::string path, const TrainConfig::Sample& sample, const ModelConfig& model, const ModelText& text)
    : path_(std::move(path)), texts_(sample.prompts), model_(model), text_(text) {
  for (const std::string& asked : texts_) {
    const bool chat = text_.chat_template.has_value();
    Prompt prompt{.chat = chat, .max_tokens = sample.max_tokens};
    prompt.ids = chat ? text_.encode_chat(nlohmann::ordered_json::array({{{"role", "user"}, {"content", asked}}}))
                      : text_.tokenizer.encode(asked, true);
    const int64_t tokens = std::ssize(prompt.ids);
    if (tokens == 0 || tokens >= model_.max_position)
      fail_input(fmt::format("sample.prompts: {} has {} tokens, expected 1 to {}, so that an answer has room",
                             printable(asked), tokens, model_.max_position - 1));
    prompts_.push_back(std::move(prompt));
  }
}

std::vector<size_t> Samples::missing(int64_t step) const {
  std::map<std::string, int64_t> answered;  // by prompt; a prompt may be asked twice
  if (can_read(path_)) {
    for (LineReader line(path_); line.next();) {
      const nlohmann::json object = nlohmann::json::parse(line.line(), nullptr, false);
      if (!object.is_object() || object.value("step", nlohmann::json()) != step) continue;
      const nlohmann::json prompt = object.value("prompt", nlohmann::json());
      if (prompt.is_string()) ++answered[prompt.get<std::string>()];
    }
  }
  std::vector<size_t> missing;
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (answered[texts_[i]]-- <= 0) missing.push_back(i);
  }
  return missing;
}

void Samples::write(int64_t step, Machine& machine, Trainer& trainer, const volatile std::sig_atomic_t* stop) {
  if (!fits_) return;
  const Work work(fmt::format("the answers to sample.prompts after step {}", step),
                  {.expected_s = seconds_, .ends_at_stop = true});
  const double start_s = now_s();
  constexpr int64_t kMargin = 64 * kMiB;
  trainer.drain();
  std::vector<Answer> answers;
  try {
    const bool cuda = machine.device->kind() == DeviceKind::cuda;
    Generator generator(*machine.device, *machine.ops, model_, trainer.records(),
                        {.max_context = context_of(prompts_, model_.max_position),
                         .max_batch = std::min<int64_t>(std::ssize(prompts_), 8),
                         .memory_bytes = cuda ? machine.device->memory_free() - kMargin : host_memory_available() / 2});
    answers = answer(generator, text_, prompts_, {.stop = stop});
  } catch (const Error& error) {
    if (error.code() != ExitCode::cannot_fit) throw;
    log_warn(fmt::format("no samples in this run: {}; lower memory.gpu to leave room for them", error.what()));
    fits_ = false;
    return;
  }
  if (stop && *stop) return;
  seconds_ = now_s() - start_s;
  LineFile file(path_);
  for (const size_t i : missing(step)) {
    const nlohmann::ordered_json line = {{"step", step}, {"prompt", texts_[i]}, {"text", answers[i].text}};
    file.append(json_text(line));
    log_info(fmt::format("step {}: {} -> {}", step, printable(texts_[i]), printable(answers[i].text)));
  }
}

}  // namespace megatrain

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
#include "megatrain/train/sampling.h"

namespace megatrain {

Samples::Samples(std::string path, const TrainConfig::Sample& sample, const AdapterRules& adapter,
                 const ModelConfig& model, const ModelText& text)
    : path_(std::move(path)), sample_(sample), adapter_(adapter), model_(model), text_(text) {
  for (const std::string& asked : sample_.prompts) {
    const bool chat = text_.chat_template.has_value();
    Prompt prompt{.chat = chat, .max_tokens = sample.max_tokens};
    prompt.ids = chat ? text_.encode_chat(nlohmann::ordered_json::array({{{"role", "user"}, {"content", asked}}}))
                      : text_.tokenizer.encode(asked, true);
    const int64_t tokens = std::ssize(prompt.ids);
    if (tokens == 0 || tokens >= model_.max_position)
      fail_input(fmt::format("sample.prompts: {} has {} tokens, expected 1 to {}, to leave room for an answer",
                             printable(asked), tokens, model_.max_position - 1));
    prompts_.push_back(std::move(prompt));
  }
}

std::vector<size_t> Samples::missing(int64_t step) const {
  std::map<std::string, int64_t> answered;  // by prompt; the same prompt may be listed twice
  if (can_read(path_)) {
    for (LineReader line(path_); line.next();) {
      const nlohmann::json object = nlohmann::json::parse(line.line(), nullptr, false);
      if (!object.is_object() || object.value("step", nlohmann::json()) != step) continue;
      const nlohmann::json prompt = object.value("prompt", nlohmann::json());
      if (prompt.is_string()) ++answered[prompt.get<std::string>()];
    }
  }
  std::vector<size_t> missing;
  for (size_t i = 0; i < sample_.prompts.size(); ++i) {
    if (answered[sample_.prompts[i]]-- <= 0) missing.push_back(i);
  }
  return missing;
}

int64_t Samples::longest_prompt() const {
  int64_t longest = 0;
  for (const Prompt& prompt : prompts_) longest = std::max(longest, std::ssize(prompt.ids));
  return longest;
}

// Uses the memory that the plan set aside, and `more_bytes` of device memory for weights that then need not stream.
std::vector<Answer> Samples::answers(Machine& machine, Trainer& trainer, int64_t more_bytes,
                                     const volatile std::sig_atomic_t* stop) const {
  GeneratorOptions options = sample_options(sample_, model_, adapter_, longest_prompt());
  options.lent = trainer.lend();
  options.memory_bytes = more_bytes;
  Generator generator(*machine.device, *machine.ops, model_, trainer.records(), options);
  return answer(generator, text_, prompts_, {.stop = stop});
}

void Samples::write(int64_t step, Machine& machine, Trainer& trainer, const volatile std::sig_atomic_t* stop) {
  const Work work(fmt::format("the answers to sample.prompts after step {}", step),
                  {.expected_s = seconds_, .ends_at_stop = true});
  const double start_s = now_s();
  constexpr int64_t kMargin = 64 * kMiB;
  const bool cuda = machine.device->kind() == DeviceKind::cuda;
  const int64_t free =
      std::max<int64_t>(cuda ? machine.device->memory_free() - kMargin : host_memory_available() / 2, 0);
  std::vector<Answer> answered;
  // retry without the extra memory, which another process may have taken
  for (const int64_t more_bytes : {free, int64_t{0}}) {
    try {
      answered = answers(machine, trainer, more_bytes, stop);
      break;
    } catch (const Error& error) {
      if (error.code() != ExitCode::cannot_fit) throw;
      if (more_bytes > 0) continue;
      // only host memory can run out: device memory is lent by the trainer
      log_warn(fmt::format("no samples after step {}: {}", step, error.what()));
      return;
    }
  }
  if (stop && *stop) return;
  seconds_ = now_s() - start_s;
  LineFile file(path_);
  for (const size_t i : missing(step)) {
    const nlohmann::ordered_json line = {{"step", step}, {"prompt", sample_.prompts[i]}, {"text", answered[i].text}};
    file.append(json_text(line));
    log_info(fmt::format("step {}: {} -> {}", step, printable(sample_.prompts[i]), printable(answered[i].text)));
  }
}

}  // namespace megatrain

#include "megatrain/python/bound_model.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/generate/check_sampling.h"
#include "megatrain/inference/loaded_model.h"
#include "megatrain/inference/token_scores.h"
#include "megatrain/python/interrupt.h"

namespace megatrain {

namespace nb = nanobind;

namespace {

using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Row = nb::ndarray<nb::numpy, float, nb::ndim<1>>;
using Rows = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

constexpr const char* kInterrupted = "\nmegatrain: interrupted: stopping after this pass\n";

// The array owns the values.
template <typename Array, typename... Sizes>
Array owned(std::vector<float> values, Sizes... sizes) {
  auto kept = std::make_unique<std::vector<float>>(std::move(values));
  float* const data = kept->data();
  const nb::capsule owner(kept.release(), [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return Array(data, {static_cast<size_t>(sizes)...}, owner);
}

struct Asked {
  std::vector<std::string> prompts;  // texts, or conversations as JSON
  bool chat = false;
  int64_t max_tokens = 0;
  double temperature = 0;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  uint64_t seed = 0;
  std::vector<std::string> stops;
};

using Reply = std::tuple<std::string, std::vector<int32_t>, int64_t, bool>;  // text, ids, prompt tokens, stopped

class BoundModel {
 public:
  BoundModel(const std::string& name, const std::vector<std::string>& settings)
      : model_(name, settings, "megatrain.Model") {}

  std::vector<Reply> generate(const Asked& asked, const Interrupt& interrupt) {
    AnswerOptions options{.sampling = {.temperature = asked.temperature,
                                       .top_p = asked.top_p.value_or(1),
                                       .top_k = asked.top_k.value_or(0),
                                       .seed = asked.seed},
                          .stops = asked.stops,
                          .stop = interrupt.stop(),
                          .reuse = asked.chat};
    check_sampling(options.sampling, asked.top_p || asked.top_k,
                   {.temperature = "temperature", .top_p = "top_p", .top_k = "top_k"});
    if (asked.max_tokens < 1) fail_config("max_tokens must be 1 or more");
    if (std::ranges::count(asked.stops, "") > 0) fail_config("stop has an empty text, before which nothing could be");
    std::vector<Prompt> prompts;
    for (const std::string& prompt : asked.prompts) {
      prompts.push_back(asked.chat ? model_.chat_prompt(nlohmann::ordered_json::parse(prompt), "")
                                   : model_.prompt(prompt, ""));
      prompts.back().max_tokens = asked.max_tokens;
    }
    std::vector<Reply> replies;
    for (Answer& one : answer(generator(prompts), model_.text(), prompts, options)) {
      const int64_t tokens = static_cast<int64_t>(prompts[replies.size()].ids.size());
      replies.emplace_back(std::move(one.text), std::move(one.ids), tokens, one.finish == Finish::stop);
    }
    return replies;
  }

  std::vector<float> log_probs_of(std::span<const int32_t> ids) { return log_probs(forward(ids), ids); }

  // (n, V) after the last n tokens.
  std::vector<float> logits_of(std::span<const int32_t> ids, int64_t last) {
    if (last < 1 || last > static_cast<int64_t>(ids.size()))
      fail_config("last must be at least 1, and at most the number of tokens");
    std::vector<float> rows;
    each_logits(forward(ids), ids, static_cast<int64_t>(ids.size()) - last,
                [&](int64_t, std::span<const float> logits) { rows.insert(rows.end(), logits.begin(), logits.end()); });
    return rows;
  }

  std::vector<int32_t> encode(const std::string& text) const { return model_.text().tokenizer.encode(text, true); }
  std::string decode(std::span<const int32_t> ids) const { return model_.text().tokenizer.decode(ids, false); }
  int64_t vocab() const { return model_.config().vocab; }
  int64_t max_position() const { return model_.config().max_position; }
  std::mutex& mutex() { return mutex_; }

 private:
  CachedForward& forward(std::span<const int32_t> ids) {
    if (static_cast<int64_t>(ids.size()) > model_.config().max_position)
      fail_input("there are more tokens than the model's context holds");
    return generator({{.ids = {ids.begin(), ids.end()}}}).forward();
  }

  // The generator that is there, if it has room for the prompts.
  Generator& generator(const std::vector<Prompt>& prompts) {
    constexpr size_t kAtOnce = 32;
    if (generator_) {
      const GeneratorOptions& has = generator_->forward().options();
      if (has.max_context >= context_of(prompts, model_.config().max_position) &&
          has.max_batch >= static_cast<int64_t>(std::min(prompts.size(), kAtOnce)))
        return *generator_;
    }
    const bool grows = prompts.size() == 1 && prompts[0].chat;  // a conversation
    generator_ = nullptr;
    generator_ = grows && context_of(prompts, model_.config().max_position) <= LoadedModel::kDefaultContext / 2
                     ? &model_.generator_with({}, 1, 1)
                     : &model_.generator_for(prompts);
    return *generator_;
  }

  LoadedModel model_;
  Generator* generator_ = nullptr;  // the model's
  std::mutex mutex_;                // Python threads take turns
};

// Runs `work` without the GIL, one thread at a time.
template <typename Work>
auto alone(BoundModel& model, Work work) {
  const nb::gil_scoped_release released;
  const std::lock_guard lock(model.mutex());
  return work();
}

std::vector<Reply> generate(BoundModel& model, std::vector<std::string> prompts, bool chat, int64_t max_tokens,
                            double temperature, std::optional<double> top_p, std::optional<int64_t> top_k,
                            uint64_t seed, std::vector<std::string> stops, bool takes_interrupts) {
  const Asked asked{.prompts = std::move(prompts),
                    .chat = chat,
                    .max_tokens = max_tokens,
                    .temperature = temperature,
                    .top_p = top_p,
                    .top_k = top_k,
                    .seed = seed,
                    .stops = std::move(stops)};
  const Interrupt interrupt(takes_interrupts, kInterrupted);
  std::vector<Reply> replies = alone(model, [&] { return model.generate(asked, interrupt); });
  if (*interrupt.stop() != 0) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw nb::python_error();
  }
  return replies;
}

std::span<const int32_t> span_of(const Ids& ids) { return {ids.data(), ids.size()}; }

}  // namespace

void bind_model(nb::module_& module) {
  nb::class_<BoundModel>(module, "Model")
      .def(nb::init<const std::string&, const std::vector<std::string>&>(), nb::arg("name"), nb::arg("settings"))
      .def("generate", &generate, nb::arg("prompts"), nb::arg("chat"), nb::arg("max_tokens"), nb::arg("temperature"),
           nb::arg("top_p").none(), nb::arg("top_k").none(), nb::arg("seed"), nb::arg("stops"),
           nb::arg("takes_interrupts"))
      .def("log_probs",
           [](BoundModel& model, const Ids& ids) {
             std::vector<float> found = alone(model, [&] { return model.log_probs_of(span_of(ids)); });
             const size_t count = found.size();
             return owned<Row>(std::move(found), count);
           })
      .def("logits",
           [](BoundModel& model, const Ids& ids, int64_t last) {
             std::vector<float> found = alone(model, [&] { return model.logits_of(span_of(ids), last); });
             return owned<Rows>(std::move(found), last, model.vocab());
           })
      .def("encode", &BoundModel::encode)
      .def("decode", [](const BoundModel& model, const Ids& ids) { return model.decode(span_of(ids)); })
      .def_prop_ro("vocab", &BoundModel::vocab)
      .def_prop_ro("max_position", &BoundModel::max_position);
}

}  // namespace megatrain

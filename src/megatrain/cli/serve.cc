#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/work.h"
#include "megatrain/cli/loaded_model.h"
#include "megatrain/cli/signal_watch.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/http/server.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/serve/api.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kDefaultSequences = 8;
constexpr int64_t kMostSequences = 256;
constexpr int64_t kMostBodyBytes = 8 << 20;
constexpr int64_t kLogitsBytes = 64 << 20;  // for the log-probabilities of prompts

// The name clients use for the model: Org/Name unchanged, a directory's last component, the run's name for RUN/model.
std::string name_of(const std::string& given) {
  if (!fs::exists(given)) return given;
  fs::path path = fs::absolute(given).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.filename() == "model" && fs::exists(path.parent_path() / "config.resolved.yaml")) path = path.parent_path();
  return path.filename().string();
}

std::optional<int64_t> read_sequences(const Arguments& arguments) {
  const std::optional<int64_t> sequences = arguments.integer("--max-sequences");
  if (sequences && (*sequences < 1 || *sequences > kMostSequences))
    fail_config(fmt::format("--max-sequences is {}; expected 1 to {}", *sequences, kMostSequences));
  return sequences;
}

// What is wrong with several adapters, each by itself. One alone is named as it is.
class Problems {
 public:
  template <class Action>
  void gather(const std::string& of, const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      if (list_.empty() || std::string(list_.back().error.what()) != error.what()) list_.push_back({of, error});
    }
  }
  void fail_if_any() const {
    if (list_.empty()) return;
    if (list_.size() == 1) throw list_.front().error;
    std::string all = fmt::format("{} adapters cannot be served:", list_.size());
    for (size_t i = 0; i < list_.size(); ++i)
      all += fmt::format(" ({}) {}: {}{}", i + 1, list_[i].of, list_[i].error.what(), i + 1 < list_.size() ? ";" : "");
    fail(list_.front().error.code(), all);
  }

 private:
  struct Problem {
    std::string of;
    Error error;
  };
  std::vector<Problem> list_;
};

struct NamedAdapter {
  std::string name, directory;
};

std::vector<NamedAdapter> read_adapters(const Arguments& arguments, const std::string& base) {
  std::vector<NamedAdapter> adapters;
  std::set<std::string> names = {base};
  Problems problems;
  const auto read = [&](const std::string& given) {
    const size_t equals = given.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == given.size())
      fail_config(
          fmt::format("--adapter is '{}'; expected NAME=DIR: what clients call the model, and its directory", given));
    adapters.push_back({.name = given.substr(0, equals), .directory = given.substr(equals + 1)});
    if (!names.insert(adapters.back().name).second)
      fail_config(fmt::format("two models are called {}; give each --adapter a name of its own", adapters.back().name));
  };
  for (const std::string& given : arguments.all("--adapter")) problems.gather(given, [&] { read(given); });
  problems.fail_if_any();
  return adapters;
}

HttpOptions read_http(const Arguments& arguments) {
  constexpr int64_t kDefaultPort = 8000, kMostPort = 65535;
  const int64_t port = arguments.integer("--port").value_or(kDefaultPort);
  if (port < 0 || port > kMostPort)
    fail_config(fmt::format("--port is {}; expected 0 (any that is free) to {}", port, kMostPort));
  HttpOptions options{.port = static_cast<int>(port), .max_body_bytes = kMostBodyBytes, .max_connections = 256};
  if (const auto host = arguments.option("--host")) options.host = *host;
  return options;
}

ApiOptions read_api(const Arguments& arguments) {
  constexpr int64_t kMostWait_s = 86400;
  ApiOptions options;
  if (const auto file = arguments.option("--api-key-file")) options.keys = ApiKeys::read(*file);
  if (const auto wait = arguments.integer("--max-wait")) {
    if (*wait < 1 || *wait > kMostWait_s)
      fail_config(fmt::format("--max-wait is {}; expected 1 to {} seconds", *wait, kMostWait_s));
    options.most_wait_s = static_cast<double>(*wait);
  }
  return options;
}

// Runs the engine on its own thread and stops it on destruction.
class EngineThread {
 public:
  explicit EngineThread(AnswerEngine& engine) : engine_(engine), thread_([&engine] { engine.run(); }) {}
  ~EngineThread() {
    engine_.stop();
    thread_.join();
  }

 private:
  AnswerEngine& engine_;
  std::thread thread_;
};

}  // namespace

int verb_serve(const Arguments& arguments) {
  const std::string& given = arguments.one("MODEL or RUN");
  const std::optional<int64_t> sequences = read_sequences(arguments), context = arguments.integer("--context");
  const HttpOptions http = read_http(arguments);
  const ApiOptions api = read_api(arguments);
  const std::string name = arguments.option("--name").value_or(name_of(given));
  if (name.empty()) fail_config("--name is empty; expected the name by which clients ask for the model");

  const std::vector<NamedAdapter> adapters = read_adapters(arguments, name);

  LoadedModel model(given, arguments, "serve");
  std::vector<ApiModel> models = {{.name = name, .text = model.text()}};
  Problems problems;
  for (const NamedAdapter& adapter : adapters)
    problems.gather(adapter.name, [&] {
      const ModelText& text = model.add_adapter(adapter.directory);
      models.push_back({.name = adapter.name, .text = text, .adapter = models.size()});
    });
  problems.fail_if_any();
  std::unique_ptr<AnswerEngine> made;  // outlives the server, whose replies notify it when a client leaves
  HttpServer server(http);             // before loading weights, so that a port in use is reported at once
  made = std::make_unique<AnswerEngine>(model.generator_with(context, sequences, kDefaultSequences, kLogitsBytes));
  AnswerEngine& engine = *made;
  RequestPool requests;  // ends before the server, which it sends replies to
  serve_api(server, requests, {.engine = engine, .list = models}, api);

  const std::string url = server.url() + "/v1";
  if (!server.on_loopback() && api.keys.any())
    log_warn("--host is not loopback, and there is no TLS: anyone on the way can read the API key and every text");
  if (!server.on_loopback() && !api.keys.any())
    log_warn(
        "--host is not loopback: anyone who can reach this machine can use the model; there is no password and no TLS "
        "(--api-key-file asks for a key)");
  for (const NamedAdapter& adapter : adapters)
    log_info(fmt::format("\"{}\" is the adapter {}", adapter.name, adapter.directory));
  log_info(fmt::format("serving \"{}\" at {}: {} answers at once, {} tokens of context each{}; ctrl-C ends it", name,
                       url, engine.sequences(), engine.context(),
                       model.text().chat_template ? ""
                                                  : "; the model has no chat template, so there is only "
                                                    "/v1/completions"));
  const SignalWatch signals(false);
  const Work work("the requests at hand", {.ends_at_stop = true, .then = "the server stops"});
  nlohmann::ordered_json about = {{"url", url},
                                  {"page", server.url() + "/"},
                                  {"model", name},
                                  {"context", engine.context()},
                                  {"max_sequences", engine.sequences()},
                                  {"max_wait_s", api.most_wait_s},
                                  {"api_key", api.keys.any()}};
  for (const NamedAdapter& adapter : adapters) about["adapters"].push_back(adapter.name);
  const std::string started = arguments.json() ? json_text(about) : url;
  print_result(started + "\n", "address");
  const EngineThread thread(engine);
  server.run(signals.stop());
  return 0;
}

}  // namespace megatrain

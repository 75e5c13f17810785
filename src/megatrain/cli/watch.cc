// `megatrain watch`: follows runs from outside, in a terminal, as JSON lines, or as a web page.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json_text.h"
#include "megatrain/watch/screen.h"
#include "megatrain/watch/stop_signals.h"
#include "megatrain/watch/terminal.h"
#include "megatrain/watch/watch_server.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr int kDefaultPort = 8484;
constexpr int kLookMs = 200;

AlertLimits limits_of(const Arguments& arguments) {
  AlertLimits limits;
  if (const auto spike = arguments.number("--alert-spike")) {
    if (!(*spike == 0 || *spike > 1)) fail_config("--alert-spike is a factor above 1, or 0 for never");
    limits.spike = *spike;
  }
  if (const auto stall = arguments.number("--alert-stall")) {
    if (!(*stall > 0)) fail_config("--alert-stall is a number of seconds above 0");
    limits.stall_s = *stall;
  }
  if (const auto disk = arguments.option("--alert-disk")) {
    try {
      limits.disk_bytes = parse_bytes(*disk);
    } catch (const Error& error) {
      fail_config(fmt::format("--alert-disk: {}", error.what()));
    }
  }
  return limits;
}

struct Watched {
  std::vector<std::string> runs;
  std::optional<int> port;
};

// If the last argument is a number and not a directory, it is the port of --http.
Watched watched_of(const Arguments& arguments) {
  Watched watched{.runs = arguments.plain()};
  if (arguments.flag("--http") && !watched.runs.empty()) {
    const std::string& last = watched.runs.back();
    std::error_code none;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const bool number = std::all_of(last.begin(), last.end(), is_digit);
    // "80x" after a run is a mistyped port; alone it is a run, which need not exist yet
    const bool meant = number || (watched.runs.size() > 1 && last.find('/') == std::string::npos);
    if (!last.empty() && is_digit(last.front()) && meant && !std::filesystem::is_directory(last, none)) {
      if (!number || last.size() > 5 || std::stoi(last) > 65535)
        fail_config(
            fmt::format("--http {0} is not a port; expected 0 to 65535, or, for a run of that name, ./{0}", last));
      watched.port = std::stoi(last);
      watched.runs.pop_back();
    }
  }
  if (watched.runs.empty())
    fail_config("'megatrain watch' takes the run directories to follow; see 'megatrain watch --help'");
  for (const std::string& run : watched.runs) {
    std::error_code none;
    if (std::filesystem::exists(run, none) && !std::filesystem::is_directory(run, none))
      fail_input(fmt::format("{} is a file, expected a run directory; give the run_dir of a run", run));
  }
  return watched;
}

void wait_a_moment(const volatile std::sig_atomic_t* stop) {
  if (*stop == 0) std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
}

int ended_by(const volatile std::sig_atomic_t* stop) { return 128 + static_cast<int>(*stop); }

int print_state(Watcher& watcher) {
  watcher.poll();
  std::string text;
  for (const auto& run : watcher.runs()) {
    if (run->follower.phase() == RunPhase::absent)
      fail_input(
          fmt::format("{} is not a run yet: it has no config.resolved.yaml; give the run_dir of a 'megatrain "
                      "train', or wait for it with --follow",
                      run->follower.path()));
    json state = run->follower.state();
    state["alerts"] = run->raised;
    text += json_text(state) + "\n";
  }
  print_result(text, "result");
  return 0;
}

struct Stopped {};  // thrown when a signal arrives between two events of a poll

// Writes pieces that a pipe with room takes whole, so that a signal can end the wait for a slow reader.
void print_event(const RunEvent& event, const StopSignals& signals) {
  const std::string text = json_text(event) + "\n";
  for (size_t at = 0; at < text.size(); at += PIPE_BUF) {
    if (!signals.wait_for_room(STDOUT_FILENO)) throw Stopped();
    print_result(text.substr(at, PIPE_BUF), "result");
  }
}

int follow(Watcher& watcher, const StopSignals& signals) {
  const volatile std::sig_atomic_t* stop = signals.stop();
  bool waiting = false;
  while (*stop == 0) {
    try {
      watcher.poll([&](const RunEvent& event) { print_event(event, signals); });
    } catch (const Stopped&) {
      break;
    }
    if (watcher.all_ended()) return watcher.exit_code();
    for (const auto& run : watcher.runs()) {
      if (!waiting && run->follower.phase() == RunPhase::absent) {
        log_info(fmt::format("{} is not there yet: waiting for it", run->follower.path()));
        waiting = true;
      }
    }
    wait_a_moment(stop);
  }
  return ended_by(stop);
}

int serve(Watcher& watcher, const Arguments& arguments, std::optional<int> port,
          const volatile std::sig_atomic_t* stop) {
  HttpOptions options{.host = arguments.option("--host").value_or("127.0.0.1"), .port = port.value_or(kDefaultPort)};
  std::optional<WatchServer> server;
  try {
    server.emplace(watcher, options);
  } catch (const Error& error) {
    if (port || error.code() != ExitCode::io) throw;
    options.port = 0;  // the default port is in use
    server.emplace(watcher, options);
  }
  if (!server->http().on_loopback())
    log_warn(fmt::format("anyone who can reach {} can read these runs; without --host only this machine can",
                         server->http().url()));
  print_result(server->http().url() + "/\n", "address");
  server->run(stop);
  return ended_by(stop);
}

// Handles a key. Returns false to end the watch.
bool obey(int key, ScreenChoice& choice, size_t& shown, size_t runs) {
  const auto next = [](auto& value, int count) {
    value = static_cast<std::decay_t<decltype(value)>>((static_cast<int>(value) + 1) % count);
  };
  switch (key) {
    case -1:
    case 'q':
    case 'Q': return false;
    case 'm': next(choice.metric, 5); break;
    case 'x': next(choice.axis, 3); break;
    case 'l': choice.logarithmic = !choice.logarithmic; break;
    case 's': choice.smooth = !choice.smooth; break;
    case 'r':
    case '\t': shown = (shown + 1) % runs; break;
    default: break;
  }
  return true;
}

int draw(Watcher& watcher, const volatile std::sig_atomic_t* stop) {
  Terminal terminal;
  ScreenChoice choice{.colour = is_coloured(STDOUT_FILENO)};
  size_t shown = 0;
  while (*stop == 0) {
    watcher.poll();
    const Terminal::Size size = terminal.size();
    const WatchedRun& run = *watcher.runs()[shown];
    terminal.show(screen(run.follower, run.raised, choice, size.width, size.height, shown, watcher.runs().size()));
    if (!obey(terminal.key(kLookMs), choice, shown, watcher.runs().size())) return 0;
  }
  return ended_by(stop);
}

}  // namespace

int verb_watch(const Arguments& arguments) {
  const Watched watched = watched_of(arguments);
  const bool http = arguments.flag("--http"), follows = arguments.flag("--follow");
  if (http && arguments.json()) fail_config("--http serves a page, and --json prints: give one of them");
  if (follows && !arguments.json()) fail_config("--follow needs --json; the terminal and --http always follow");
  if (!http && arguments.option("--host")) fail_config("--host is the address that --http listens on; add --http");
  if (arguments.json() && !follows && arguments.option("--alert-command"))
    fail_config("--alert-command runs as alerts come; --json without --follow prints once and ends");
  if (arguments.option("--alert-command") == "")
    fail_config("--alert-command is empty; give the command, or leave it out");
  const StopSignals signals;
  const bool draws = !http && !arguments.json();
  Watcher watcher(watched.runs, limits_of(arguments),
                  AlertCommand(arguments.option("--alert-command").value_or(""), draws));
  if (http) return serve(watcher, arguments, watched.port, signals.stop());
  if (follows) return follow(watcher, signals);
  return draws ? draw(watcher, signals.stop()) : print_state(watcher);
}

}  // namespace megatrain

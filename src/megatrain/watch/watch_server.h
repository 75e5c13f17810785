// The report's page, served and growing: GET of four paths (/, /style.css, /script.js, /events) and nothing else. No
// path of the file system is part of any.
#pragma once

#include <csignal>
#include <map>
#include <vector>

#include "megatrain/http/server.h"
#include "megatrain/watch/watcher.h"

namespace megatrain {

class WatchServer {
 public:
  WatchServer(Watcher& watcher, const HttpOptions& options);

  const HttpServer& http() const { return server_; }
  // Until *stop_wish is not 0.
  void run(const volatile std::sig_atomic_t* stop_wish) { server_.run(stop_wish); }
  void stop() { server_.stop(); }

 private:
  // What the pages have been told of a run.
  struct Told {
    size_t steps = 0, evaluations = 0, samples = 0, alerts = 0;
    int64_t back = 0, lanes_step = -1;
    size_t since_whole = 0;  // steps that came one by one
    std::string state;       // the text that changes with every look
  };

  void page(const HttpRequest& request, const HttpReply& reply) const;
  void follow(const HttpReply& reply);
  void look();
  nlohmann::json whole(size_t index) const;
  nlohmann::json news(size_t index);

  Watcher& watcher_;
  HttpServer server_;
  std::vector<Told> told_;
  std::vector<HttpReply> followers_;
};

}  // namespace megatrain

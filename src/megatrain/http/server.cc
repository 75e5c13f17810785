#include "megatrain/http/server.h"

#include <event2/thread.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/http/loop.h"
#include "megatrain/http/names.h"
#include "megatrain/http/socket.h"

namespace megatrain {

namespace {

constexpr double kLookForStop_s = 0.1;
constexpr double kLookAtConnections_s = 0.05;

timeval interval(double seconds) {
  const auto us = static_cast<int64_t>(seconds * 1e6);
  return {.tv_sec = us / 1'000'000, .tv_usec = us % 1'000'000};
}

const char* method_name(evhttp_cmd_type type) {
  switch (type) {
    case EVHTTP_REQ_GET: return "GET";
    case EVHTTP_REQ_POST: return "POST";
    case EVHTTP_REQ_HEAD: return "HEAD";
    case EVHTTP_REQ_PUT: return "PUT";
    case EVHTTP_REQ_DELETE: return "DELETE";
    case EVHTTP_REQ_OPTIONS: return "OPTIONS";
    case EVHTTP_REQ_TRACE: return "TRACE";
    case EVHTTP_REQ_CONNECT: return "CONNECT";
    case EVHTTP_REQ_PATCH: return "PATCH";
  }
  return "";
}

constexpr uint32_t kAllMethods = EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT |
                                 EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE | EVHTTP_REQ_CONNECT |
                                 EVHTTP_REQ_PATCH;

// Writing to a client that has gone must be an error of the write, not the end of the process.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutPipeSignal() {
    const timespec now{};
    while (sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
};

}  // namespace

void HttpServer::Loop::add_timer(double seconds, std::function<void()> call) {
  timed.push_back([this, call = std::move(call)] {
    try {
      call();
    } catch (...) {  // exceptions must not pass through libevent
      thrown = std::current_exception();
      event_base_loopbreak(base.get());
    }
  });
  timers.emplace_back(event_new(
      base.get(), -1, EV_PERSIST,
      [](evutil_socket_t, short, void* timed_call) { (*static_cast<std::function<void()>*>(timed_call))(); },
      &timed.back()));
  const timeval wait = interval(seconds);
  event_add(timers.back().get(), &wait);
}

void HttpServer::Loop::keep_room() {
  full = !connections.have_room();
  if (full) {
    evconnlistener_disable(listener);
  } else {
    evconnlistener_enable(listener);
  }
}

void HttpServer::Loop::send_heartbeats() {
  const std::vector<HttpReply::State*> now(open.begin(), open.end());  // a copy: dropping one removes it from the set
  for (HttpReply::State* state : now) state->write(":\n\n");
}

// Refuses the request if the server has a reason to, otherwise calls the handler of its path.
void HttpServer::Loop::handle(const HttpRequest& request, const HttpReply& reply, const evkeyvalq* headers) {
  if (is_loopback(address)) {
    const char* host = evhttp_find_header(headers, "Host");
    if (!host || !is_loopback_name(host_of(host)))
      return reply.send_error(403,
                              "this server is on loopback, and the Host header does not name this machine; use "
                              "http://localhost or http://127.0.0.1");
    const char* origin = evhttp_find_header(headers, "Origin");
    if (origin && !is_loopback_name(host_of_origin(origin)))
      return reply.send_error(
          403, "this server is on loopback and does not answer pages from other machines (Origin header)");
  }
  auto path = paths.find(request.path);
  if (path == paths.end()) {
    path = std::find_if(paths.begin(), paths.end(), [&request](const auto& known) {
      return known.first.ends_with("/*") && request.path.starts_with(known.first.substr(0, known.first.size() - 1));
    });
  }
  if (path == paths.end()) {
    std::string known;
    for (const auto& [name, ignored] : paths) known += (known.empty() ? "" : ", ") + name;
    return reply.send_error(404, fmt::format("404: no such path {}. Available: {}", request.path, known));
  }
  const auto handler = path->second.find(request.method == "HEAD" ? "GET" : request.method);
  if (handler == path->second.end()) {
    std::string allowed;
    for (const auto& [method, ignored] : path->second) allowed += (allowed.empty() ? "" : ", ") + method;
    reply.state_->add_header("Allow", allowed.c_str());
    return reply.send_error(405, fmt::format("{} takes {}, not {}", request.path, allowed, request.method));
  }
  if (static_cast<int64_t>(request.body.size()) > options.max_body_bytes)
    return reply.send_error(413, fmt::format("the body has more than {} bytes", options.max_body_bytes));
  try {
    handler->second(request, reply);
  } catch (const Error& error) {
    const bool theirs = error.code() == ExitCode::bad_config || error.code() == ExitCode::bad_input;
    reply.send_error(theirs ? 400 : 500, error.what());
  } catch (const std::exception& error) {
    reply.send_error(500, error.what());
  }
}

void HttpServer::Loop::answer(const std::shared_ptr<Loop>& self, evhttp_request* from) {
  HttpRequest request{.method = method_name(evhttp_request_get_command(from))};
  const std::string_view uri = evhttp_request_get_uri(from);
  const size_t query = std::min(uri.find('?'), uri.size());
  request.path = uri.substr(0, query);
  request.query = uri.substr(std::min(query + 1, uri.size()));
  if (const char* given = evhttp_find_header(evhttp_request_get_input_headers(from), "Authorization"))
    request.authorization = given;
  evbuffer* body = evhttp_request_get_input_buffer(from);
  request.body.resize(evbuffer_get_length(body));
  evbuffer_remove(body, request.body.data(), request.body.size());
  const std::shared_ptr<HttpReply::State> state(new HttpReply::State, HttpReply::State::release);
  state->loop = self;
  state->begin(from);
  handle(request, HttpReply(state), evhttp_request_get_input_headers(from));
}

void HttpServer::Loop::close() {
  for (bool done = false; !done;) {
    run_posts();
    const std::lock_guard lock(mutex);
    done = closed = posts.empty();
  }
  while (!open.empty()) (*open.begin())->drop();
  http.reset();
  connections.clear();
}

HttpServer::HttpServer(const HttpOptions& options) : loop_(std::make_shared<Loop>()) {
  static const int kThreads = evthread_use_pthreads();  // must precede the first base
  ensure(kThreads == 0, "libevent has threads");
  Loop* loop = loop_.get();
  loop->options = options;
  const int socket = listen_on(options);
  loop->base.reset(event_base_new());
  loop->http.reset(evhttp_new(loop->base.get()));
  evhttp* http = loop->http.get();
  evhttp_set_max_headers_size(http, options.max_header_bytes);
  evhttp_set_max_body_size(http, 2 * options.max_body_bytes);  // up to this size, the refusal is our own message
  evhttp_set_timeout(http, options.timeout_s);
  evhttp_set_allowed_methods(http, kAllMethods);
  evhttp_set_default_content_type(http, nullptr);
  evhttp_set_gencb(
      http,
      [](evhttp_request* request, void* server) {
        const auto& self = *static_cast<std::shared_ptr<Loop>*>(server);
        self->answer(self, request);
      },
      &loop_);
  evhttp_set_bevcb(
      http,
      [](event_base* base, void* self) {  // called for each new connection
        auto* loop = static_cast<Loop*>(self);
        bufferevent* stream = loop->connections.add(base);
        loop->keep_room();
        return stream;
      },
      loop);
  socklen_t bytes = sizeof loop->address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&loop->address), &bytes);
  loop->listener = evhttp_bound_socket_get_listener(evhttp_accept_socket_with_handle(http, socket));
  loop->wake.reset(event_new(
      loop->base.get(), -1, EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<Loop*>(self)->run_posts(); }, loop));
  event_add(loop->wake.get(), nullptr);
  loop->add_timer(kLookAtConnections_s, [loop] {
    loop->connections.look();
    if (loop->full) loop->keep_room();
  });
  loop->add_timer(options.heartbeat_s, [loop] { loop->send_heartbeats(); });
  loop->add_timer(kLookForStop_s, [loop] {
    if (loop->stop_wish && *loop->stop_wish != 0) event_base_loopbreak(loop->base.get());
  });
}

HttpServer::~HttpServer() { loop_->close(); }

void HttpServer::on(const std::string& method, const std::string& path, Handler handler) {
  loop_->paths[path][method] = std::move(handler);
}

void HttpServer::every(double seconds, std::function<void()> call) { loop_->add_timer(seconds, std::move(call)); }

int HttpServer::port() const { return port_of(loop_->address); }

std::string HttpServer::url() const {
  const std::string& host = loop_->options.host;
  return fmt::format("http://{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port());
}

bool HttpServer::on_loopback() const { return is_loopback(loop_->address); }

void HttpServer::run(const volatile std::sig_atomic_t* stop_wish) {
  const WithoutPipeSignal without;
  loop_->stop_wish = stop_wish;
  event_base_loop(loop_->base.get(), EVLOOP_NO_EXIT_ON_EMPTY);
  if (loop_->thrown) std::rethrow_exception(std::exchange(loop_->thrown, nullptr));
}

void HttpServer::stop() {
  loop_->post([loop = loop_.get()] { event_base_loopbreak(loop->base.get()); });
}

}  // namespace megatrain

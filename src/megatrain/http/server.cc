#include "megatrain/http/server.h"

#include <dirent.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <event2/thread.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/http/names.h"
#include "megatrain/io/json_text.h"

namespace megatrain {

namespace {

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* thing) const {
    Free(thing);
  }
};
using BasePointer = std::unique_ptr<event_base, Freed<event_base_free>>;
using HttpPointer = std::unique_ptr<evhttp, Freed<evhttp_free>>;
using EventPointer = std::unique_ptr<event, Freed<event_free>>;
using BufferPointer = std::unique_ptr<evbuffer, Freed<evbuffer_free>>;

constexpr double kLookForStop_s = 0.1;
constexpr double kLookForRoom_s = 0.05;

constexpr const char* kNoAnswer =
    R"({"error": {"message": "the request was not answered", "type": "server_error", "param": null, "code": null}})";

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

int port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
}

// The sockets of this process at `port` of this machine: the listener and its connections. libevent does not tell when
// it closes one, so they are counted.
int64_t sockets_at(int port) {
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return 0;
  int64_t count = 0;
  while (const dirent* entry = readdir(folder)) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    const int descriptor = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
        (address.ss_family == AF_INET || address.ss_family == AF_INET6) && port_of(address) == port) {
      ++count;
    }
  }
  closedir(folder);
  return count;
}

int listen_on(const HttpOptions& options) {
  addrinfo wish{};
  wish.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  wish.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int why = getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &wish, &found);
  if (why != 0)
    fail_config(
        fmt::format("--host {}: {}; expected an address or a name of this machine", options.host, gai_strerror(why)));
  const std::unique_ptr<addrinfo, Freed<freeaddrinfo>> list(found);
  const int listener = ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int one = 1;
  if (listener >= 0) ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (listener < 0 || ::bind(listener, found->ai_addr, found->ai_addrlen) != 0 || ::listen(listener, 128) != 0) {
    const int error = errno;
    if (listener >= 0) ::close(listener);
    fail_io(fmt::format(
        "could not listen on {} port {}: {}{}", options.host, options.port, std::strerror(error),
        error == EADDRINUSE ? "; stop the program that does, or give another --port (0: any that is free)" : ""));
  }
  return listener;
}

}  // namespace

// What the server's thread and the replies share; it outlives the server while a reply is held.
struct HttpServer::Loop {
  // Destroyed from the last to the first: events go before the base that they are in.
  BasePointer base;
  HttpPointer http;
  EventPointer wake;
  std::deque<std::function<void()>> timed;  // called by timers, which hold their addresses
  std::vector<EventPointer> timers;
  std::exception_ptr thrown;  // by one of them

  HttpOptions options;
  evconnlistener* listener = nullptr;  // http's
  bool full = false;                   // it waits until a connection closes
  sockaddr_storage address{};
  std::map<std::string, std::map<std::string, Handler>> paths;  // then by method
  std::set<HttpReply::State*> open;                             // on the server's thread alone
  const volatile std::sig_atomic_t* stop_wish = nullptr;

  std::mutex mutex;
  bool closed = false;                       // posts go nowhere
  std::vector<std::function<void()>> posts;  // to be called on the server's thread

  // False: the server has closed.
  bool post(std::function<void()> call) {
    const std::lock_guard lock(mutex);
    if (closed) return false;
    posts.push_back(std::move(call));
    event_active(wake.get(), EV_READ, 0);
    return true;
  }
  void run_posts() {
    std::vector<std::function<void()>> calls;
    {
      const std::lock_guard lock(mutex);
      calls.swap(posts);
    }
    for (const auto& call : calls) call();
  }
  void add_timer(double seconds, std::function<void()> call);
  void answer(const std::shared_ptr<Loop>& self, evhttp_request* request);
  void handle(const HttpRequest& request, const HttpReply& reply, const evkeyvalq* headers);
  void keep_room();
  void close();
};

// Everything but `gone` is used on the server's thread alone.
struct HttpReply::State {
  std::shared_ptr<HttpServer::Loop> loop;
  evhttp_request* request = nullptr;  // null: answered, or gone
  EventPointer watch;                 // of the client's end
  bool events = false;
  std::atomic<bool> is_gone{false};
  std::function<void()> on_gone;

  // The last reply has gone: a request without an answer gets one.
  static void release(State* state) {
    const bool posted = state->loop->post([state] {
      state->end();
      state->send(500, "application/json", kNoAnswer);
      delete state;
    });
    if (!posted) delete state;  // a server that has closed has left nothing of libevent's in it
  }

  void begin(evhttp_request* from) {
    request = from;
    loop->open.insert(this);
    evhttp_connection* connection = evhttp_request_get_connection(request);
    evhttp_connection_set_closecb(
        connection, [](evhttp_connection*, void* self) { static_cast<State*>(self)->connection_failed(); }, this);
    const evutil_socket_t socket = bufferevent_getfd(evhttp_connection_get_bufferevent(connection));
    const int one = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // events are small
    watch.reset(event_new(
        loop->base.get(), socket, EV_CLOSED,
        [](evutil_socket_t, short, void* self) { static_cast<State*>(self)->drop(); }, this));
    event_add(watch.get(), nullptr);
  }

  // No longer this reply's: the connection is libevent's again, or closed.
  evhttp_request* take() {
    watch.reset();
    loop->open.erase(this);
    return std::exchange(request, nullptr);
  }
  evhttp_request* take_answered() {
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), nullptr, nullptr);
    on_gone = nullptr;
    return take();
  }

  void tell_gone() {
    is_gone = true;
    if (const auto call = std::exchange(on_gone, nullptr)) call();
  }
  // libevent gave the connection up; the request is left to its user.
  void connection_failed() {
    if (!request) return;
    evhttp_request_free(take());
    tell_gone();
  }
  // The client has gone, or is not to be waited for.
  void drop() {
    if (!request) return;
    evhttp_connection* connection = evhttp_request_get_connection(take());
    evhttp_connection_set_closecb(connection, nullptr, nullptr);
    evhttp_connection_free(connection);
    tell_gone();
  }

  void add_header(const char* name, const char* value) {
    evhttp_add_header(evhttp_request_get_output_headers(request), name, value);
  }
  void send(int status, const std::string& type, const std::string& body) {
    if (!request || events) return;
    add_header("Content-Type", type.c_str());
    add_header("X-Content-Type-Options", "nosniff");
    add_header("Cache-Control", "no-store");
    const BufferPointer buffer(evbuffer_new());
    evbuffer_add(buffer.get(), body.data(), body.size());
    evhttp_send_reply(take_answered(), status, nullptr, buffer.get());
  }
  void begin_events() {
    if (!request || events) return;
    events = true;
    add_header("Content-Type", "text/event-stream; charset=utf-8");
    add_header("Cache-Control", "no-store");
    evhttp_send_reply_start(request, 200, nullptr);
  }
  void write(const std::string& text) {
    if (!request || !events) return;
    bufferevent* stream = evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));
    if (static_cast<int64_t>(evbuffer_get_length(bufferevent_get_output(stream))) > loop->options.max_unread_bytes)
      return drop();
    const BufferPointer buffer(evbuffer_new());
    evbuffer_add(buffer.get(), text.data(), text.size());
    evhttp_send_reply_chunk(request, buffer.get());
  }
  void end() {
    if (request && events) evhttp_send_reply_end(take_answered());
  }
};

void HttpReply::send(int status, const std::string& type, std::string body) const {
  state_->loop->post([state = state_, status, type, body = std::move(body)] { state->send(status, type, body); });
}

void HttpReply::send_json(int status, const nlohmann::ordered_json& body) const {
  send(status, "application/json", json_text(body));
}

void HttpReply::send_error(int status, const std::string& message) const {
  send_json(status, {{"error",
                      {{"message", message},
                       {"type", status < 500 ? "invalid_request_error" : "server_error"},
                       {"param", nullptr},
                       {"code", nullptr}}}});
}

void HttpReply::begin_events() const {
  state_->loop->post([state = state_] { state->begin_events(); });
}

void HttpReply::event(std::string_view data, std::string_view name) const {
  std::string text;
  if (!name.empty()) text += fmt::format("event: {}\n", name);
  for (size_t begin = 0; begin <= data.size();) {
    const size_t end = std::min(data.find('\n', begin), data.size());
    text += fmt::format("data: {}\n", data.substr(begin, end - begin));
    begin = end + 1;
  }
  text += "\n";
  state_->loop->post([state = state_, text = std::move(text)] { state->write(text); });
}

void HttpReply::end() const {
  state_->loop->post([state = state_] { state->end(); });
}

bool HttpReply::gone() const { return state_->is_gone; }

void HttpReply::on_gone(std::function<void()> call) const {
  state_->loop->post([state = state_, call = std::move(call)] {
    if (state->is_gone) {
      call();
    } else if (state->request) {
      state->on_gone = call;
    }
  });
}

void HttpServer::Loop::add_timer(double seconds, std::function<void()> call) {
  timed.push_back([this, call = std::move(call)] {
    try {
      call();
    } catch (...) {  // no exception passes through libevent
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
  full = sockets_at(port_of(address)) - 1 >= options.max_connections;
  if (full) {
    evconnlistener_disable(listener);
  } else {
    evconnlistener_enable(listener);
  }
}

// Refuses what the server refuses, else calls the handler of the path.
void HttpServer::Loop::handle(const HttpRequest& request, const HttpReply& reply, const evkeyvalq* headers) {
  if (is_loopback(address)) {
    const char* host = evhttp_find_header(headers, "Host");
    if (!host || !is_loopback_name(host_of(host)))
      return reply.send_error(403,
                              "this server is on loopback, and the Host header does not name this machine; use "
                              "http://localhost or http://127.0.0.1");
    const char* origin = evhttp_find_header(headers, "Origin");
    if (origin && !is_loopback_name(host_of_origin(origin)))
      return reply.send_error(403, "this server is on loopback and answers no page of another machine (Origin header)");
  }
  const auto path = paths.find(request.path);
  if (path == paths.end()) return reply.send_error(404, fmt::format("there is no {}", request.path));
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
}

HttpServer::HttpServer(const HttpOptions& options) : loop_(std::make_shared<Loop>()) {
  static const int kThreads = evthread_use_pthreads();  // before the first base
  ensure(kThreads == 0, "libevent has threads");
  Loop* loop = loop_.get();
  loop->options = options;
  const int socket = listen_on(options);
  loop->base.reset(event_base_new());
  loop->http.reset(evhttp_new(loop->base.get()));
  evhttp* http = loop->http.get();
  evhttp_set_max_headers_size(http, options.max_header_bytes);
  evhttp_set_max_body_size(http, 2 * options.max_body_bytes);  // up to there the refusal is a sentence of ours
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
      [](event_base*, void* self) -> bufferevent* {  // called for each new connection; null: as libevent makes it
        static_cast<Loop*>(self)->keep_room();
        return nullptr;
      },
      loop);
  socklen_t bytes = sizeof loop->address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&loop->address), &bytes);
  loop->listener = evhttp_bound_socket_get_listener(evhttp_accept_socket_with_handle(http, socket));
  loop->wake.reset(event_new(
      loop->base.get(), -1, EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<Loop*>(self)->run_posts(); }, loop));
  event_add(loop->wake.get(), nullptr);
  loop->add_timer(kLookForRoom_s, [loop] {
    if (loop->full) loop->keep_room();
  });
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
  loop_->stop_wish = stop_wish;
  event_base_loop(loop_->base.get(), EVLOOP_NO_EXIT_ON_EMPTY);
  if (loop_->thrown) std::rethrow_exception(std::exchange(loop_->thrown, nullptr));
}

void HttpServer::stop() {
  loop_->post([loop = loop_.get()] { event_base_loopbreak(loop->base.get()); });
}

}  // namespace megatrain

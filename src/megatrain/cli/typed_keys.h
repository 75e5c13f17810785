// The characters of a terminal, for a line editor: a signal ends the wait for one, a paste is text and no command.
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

// A terminal that was told kMarkPastes puts marks around what is pasted into it.
inline constexpr std::string_view kMarkPastes = "\x1b[?2004h", kMarkNoPastes = "\x1b[?2004l";

class TypedKeys {
 public:
  enum class Got { character, end, interrupt, resumed, quit };

  // `interrupted` is set by the handler of a signal. While the object lives it watches SIGCONT.
  explicit TypedKeys(const volatile std::sig_atomic_t* interrupted);
  ~TypedKeys();
  TypedKeys(const TypedKeys&) = delete;
  TypedKeys& operator=(const TypedKeys&) = delete;

  // Reads what was typed while the terminal was not raw yet, where ctrl-D is an end and no character.
  void take_typed_ahead();

  // The next character of standard input, U+FFFD for bytes that are none. The terminal sends no signals and changes no
  // line ends meanwhile; the keys that ask for a signal send it from here. Keys that the editor has no use for are left
  // out. A paste is read whole first, so that none of it comes between two lines, and it is text: its line ends are
  // '\r' each, but for one at the very end, which is left out as control characters are; a tab comes behind a ctrl-V,
  // by which an editor takes it as it is. `resumed`: the process was stopped and goes on, on a terminal that others
  // have used. `quit`: ctrl-\ was typed, whose signal is the caller's to send, as the terminal has to be set back
  // first.
  Got next(wchar_t& character);

  // Whether the character that next() gave last, and the one before it, were pasted.
  bool pasted() const { return pasted_; }
  bool pasted_before() const { return pasted_before_; }

 private:
  struct SignalKey {
    char byte;
    int signal;
  };

  bool take_unread(char& byte);
  Got read_byte(char& byte);
  std::optional<char> byte_within(int wait_ms);
  std::string rest_of_key();
  bool obey_key();
  std::optional<int> signal_of(char byte) const;
  Got give(bool pasted);
  void paste(wchar_t character);
  void forget_paste();

  const volatile std::sig_atomic_t* interrupted_;
  std::string unread_;    // bytes that were read, and are to be taken
  std::wstring waiting_;  // characters of a paste
  size_t given_ = 0;      // of these
  bool pasting_ = false;
  bool after_return_ = false;  // in a paste: a line feed belongs to the line end before it
  bool pasted_ = false, pasted_before_ = false;
  std::vector<SignalKey> signal_keys_;  // as the terminal has them while it sends signals itself
  struct sigaction before_ {};
};

}  // namespace megatrain

// A JSON scanner for text that arrives in pieces. The scanner builds no tree: it parses values in
// place, or checks and skips them. NaN and Infinity, which Python writes, are read as null.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace chakrascope::converter {

// The error for a text that is not JSON, or does not have the expected structure.
struct FormatError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Values that are nested deeper are refused.
inline constexpr std::size_t kDeepest = 512;

// Thrown if the bytes end within a value, and more bytes may follow.
struct NeedMore {};

enum class Kind : std::uint8_t { Absent, Null, False, True, Integer, Number, String, Array, Object };

// A JSON value in place. *raw* is the text of the value, without quotes for a string.
struct Token {
    Kind kind = Kind::Absent;
    bool escaped = false;
    std::string_view raw;

    // Return the value as a 64-bit integer, or *other* if the value is not an integer. Strings of
    // decimal digits and whole numbers such as 7.0, which some tools write, count as integers.
    std::int64_t integer(std::int64_t other) const;
    // Return the value as Python's str() formats it. *scratch* stores the text of a value with escape
    // sequences.
    std::string_view text(std::string& scratch) const;
    bool is_true_integer(std::int64_t& value) const;
};

class Scanner {
  public:
    // Create a scanner of the bytes from *begin* to *end*. The byte at *end* must be readable and zero.
    // If *more* is true, further bytes may follow.
    Scanner(const char* begin, const char* end, bool more)
        : begin_(begin), at_(begin), end_(end), more_(more) {}

    const char* position() const { return at_; }
    // Skip whitespace and return the next byte, or 0 at the end of input.
    char peek() { return *at_ > ' ' ? *at_ : skip(); }
    // Whether only whitespace remains.
    bool exhausted();
    // Read the character *expected*, which must be next.
    void take(char expected) {
        if (peek() != expected) missing(expected);
        ++at_;
    }
    // Read the character *wanted* if it is next, and return whether it was.
    bool try_take(char wanted) {
        if (peek() != wanted) return false;
        ++at_;
        return true;
    }
    // Read the key of a member, and the colon after the key.
    Token key();
    // Read a value of any kind.
    Token value();

    // Read an object and call *member*(key) for each member; *member* must read the value.
    template <class Member>
    void object(Member member) {
        take('{');
        if (try_take('}')) return;
        do {
            member(key());
        } while (try_take(','));
        take('}');
    }

    // Read an array and call *element*() at the start of each element; *element* must read the element.
    template <class Element>
    void array(Element element) {
        take('[');
        if (try_take(']')) return;
        do {
            element();
        } while (try_take(','));
        take(']');
    }

    [[noreturn]] void fail(const char* what) const;

  private:
    [[noreturn]] void ended() const;
    [[noreturn]] void missing(char expected) const;
    char skip();
    Token string();
    Token number();
    Token literal(std::string_view word, Kind kind);
    Token nested();
    void digits();
    void escape();

    const char* begin_;
    const char* at_;
    const char* end_;
    bool more_;
};

// Return a text for error messages, with bytes that are not printable ASCII replaced by question marks.
std::string printable(std::string_view raw);

// Append the content *raw* of a string to *out*, with escape sequences decoded.
void unescape(std::string_view raw, std::string& out);

// Receives the parts of a document. An incomplete part is read again after more bytes have arrived.
// Therefore, a receiver must not store data before it has read a part completely.
class Parts {
  public:
    virtual ~Parts() = default;
    // Read an element of the document's array.
    virtual void element(Scanner& scanner) = 0;
    // Store the member with the name *key*. The value refers to the bytes of the document.
    virtual void member(std::string_view key, const Token& value) = 0;
};

class Document {
  public:
    // Create a document. *array* is the name of the member with the elements that are passed to *parts*
    // one by one.
    Document(std::string_view array, Parts& parts) : array_(array), parts_(parts) {}

    // Read the next bytes of the document. Raises FormatError.
    void feed(std::string_view bytes);
    // Read the remaining bytes. Raises FormatError if the document is incomplete or lacks the array.
    void finish();

  private:
    enum class State { Start, FirstMember, Member, FirstElement, Element, Done };

    void parse(bool more);
    void step(Scanner& scanner);
    void member(Scanner& scanner);
    void element(Scanner& scanner);

    std::string_view array_;
    Parts& parts_;
    State state_ = State::Start;
    bool found_ = false;
    std::string pending_;
    std::size_t passed_ = 0;      // bytes of the document before the pending bytes
    std::size_t worth_more_ = 0;  // least number of pending bytes for the next attempt to parse
};

}  // namespace chakrascope::converter

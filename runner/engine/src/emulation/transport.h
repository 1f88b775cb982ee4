// The transport that carries messages between one rank and the ranks of other processes.
//
// All times are in ns of the monotonic clock of this machine (CLOCK_MONOTONIC; time.monotonic_ns in
// Python).
#pragma once

#include <cstdint>
#include <vector>

namespace chakrascope::emulation {

using Time = std::uint64_t;

// A deadline. An exact deadline is met to within tens of microseconds.
struct Until {
    Time at = 0;
    bool exact = true;
};

enum class MessageKind : std::uint32_t {
    Data,
    Answered,  // data that the receiver must acknowledge
    Answer,    // an acknowledgement, without payload
    Request,   // a receiver's request for a message, queued behind data; not a message of the job
};

// The header of a message, with all information that the message's receiver needs.
struct Header {
    std::uint64_t size = 0;    // payload bytes
    std::int64_t tag = 0;      // identifies the receive, together with source and size
    std::uint64_t number = 0;  // number of the message from its source; in an answer, of the answered message
    std::int32_t source = 0;
    MessageKind kind = MessageKind::Data;
    // The node at the origin of the message: the start of this node began the chain of events that led
    // to the message.
    std::int32_t origin_rank = -1;
    std::int32_t origin_node = -1;
    std::uint32_t range = 0;  // additional bits of the tag
};

// A notice of the transport about a message that was sent or received.
struct Event {
    enum class Kind : std::uint8_t { Sent, Came };
    Kind kind = Kind::Sent;
    std::int32_t peer = 0;  // destination or source of the message
    std::int32_t path = 0;  // the connection on which it was sent, such as a pair of network interfaces
    Header header;
    Time begun = 0;  // when its first byte was written to or read from the network
    Time ended = 0;  // when its last byte was written or read
};

// The interface of transports. A transport object belongs to one rank, and is used by one thread.
//
// The payload has arbitrary content, and the length given in the header. Payloads use buffers of
// bounded size, regardless of the size of the message.
class Transport {
  public:
    virtual ~Transport() = default;
    // Queue a message to another rank, and return immediately. `progress` sends the message.
    virtual void post(std::int32_t peer, const Header& header) = 0;
    // Send and receive bytes until there is a notice about a message or the deadline passes. Notices are
    // added to `events`. With a deadline in the past, do only the work that is possible now. The
    // transport yields the processor during long waits. Raises BackendError if a peer is lost.
    virtual void progress(Until until, std::vector<Event>& events) = 0;
    // Return whether all queued messages have left this process.
    virtual bool idle() const = 0;
};

}  // namespace chakrascope::emulation

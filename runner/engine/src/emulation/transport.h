// The transport that carries the messages of one rank to the ranks of other processes.
//
// All times are of this machine's monotonic clock, in ns (CLOCK_MONOTONIC; time.monotonic_ns in
// Python).
#pragma once

#include <cstdint>
#include <vector>

namespace chakrascope::emulation {

using Time = std::uint64_t;

// A deadline; an exact one is met within some tens of microseconds.
struct Until {
    Time at = 0;
    bool exact = true;
};

enum class MessageKind : std::uint32_t {
    Data,
    Answered,  // data whose sender waits for an acknowledgement
    Answer,    // the acknowledgement; without payload
    Request,   // a receiver's request for a message; queued behind data, and not a message of the job
};

// The header of a message, with all information that the receiver needs.
struct Header {
    std::uint64_t size = 0;    // payload bytes
    std::int64_t tag = 0;      // identifies the receive, with source and size
    std::uint64_t number = 0;  // number among the messages of its source, from 0; in an answer, the number of
                               // the answered message
    std::int32_t source = 0;
    MessageKind kind = MessageKind::Data;
    // The node whose start began the chain of events that led to the message.
    std::int32_t origin_rank = -1;
    std::int32_t origin_node = -1;
    std::uint32_t range = 0;  // with the tag
};

// A notice about a message.
struct Event {
    enum class Kind : std::uint8_t { Sent, Came };
    Kind kind = Kind::Sent;
    std::int32_t peer = 0;  // its destination or source
    std::int32_t path = 0;  // the connection on which it was sent, such as a pair of network interfaces
    Header header;
    Time begun = 0;  // when its first byte was written to, or read from, the network
    Time ended = 0;  // its last byte
};

// One rank's side of a network. A transport is used by one thread.
//
// The content of the payload does not matter, but its length is that of the header. Payloads use
// buffers of bounded size, however large the message is.
class Transport {
  public:
    virtual ~Transport() = default;
    // Queue a message to another rank; returns at once, and `progress` does the work.
    virtual void post(std::int32_t peer, const Header& header) = 0;
    // Move bytes until there is a notice about a message, which is added to `events`, or the
    // deadline passes. With a deadline in the past, only do what is possible now. Yields the
    // processor during long waits. Raises BackendError when a peer is lost.
    virtual void progress(Until until, std::vector<Event>& events) = 0;
    // Whether all queued messages have left this process.
    virtual bool idle() const = 0;
};

}  // namespace chakrascope::emulation

// The base class of collective algorithms, which exchanges messages with peers and simulates the
// endpoint delay.
#pragma once

#include <cstdint>
#include <memory>

#include "../config.h"
#include "../event_queue.h"
#include "custom.h"
#include "stream.h"

namespace chakrascope::engine {

class Rank;

// The direction in which a bundle of data passes through the endpoint.
enum class Side : std::uint8_t { ToMemory, ToNpu };

// An algorithm runs one phase of one stream. Events of an algorithm come from the mailbox (`received`)
// and the endpoint (`credited`).
class Algorithm {
  public:
    Algorithm(Rank& rank, Stream& stream) : rank_(rank), stream_(stream), ring_(stream.phase().ring) {}
    virtual ~Algorithm() = default;
    Algorithm(const Algorithm&) = delete;
    Algorithm& operator=(const Algorithm&) = delete;

    virtual void start() = 0;

  protected:
    virtual void received(std::uint64_t what) = 0;
    virtual void credited(std::uint64_t what) = 0;

    // Exchange a message with the rank at a position of the ring. A message sent *in line* leaves after
    // the rank's earlier messages to the same peer, even on a network without queues.
    void send(std::int32_t place, std::uint64_t size, bool in_line = false);
    void receive(std::int32_t place, std::uint64_t size, std::uint64_t what = 0);
    // Move data through the endpoint, and then call `credited`. Data that is `processed` is also
    // reduced.
    void bundle(bool processed, bool send_back, Side side, std::uint64_t size, std::uint64_t what = 0);
    // End the phase. The algorithm object is already destroyed when `finish` returns.
    void finish();

    Rank& rank_;
    Stream& stream_;
    const Ring ring_;
};

std::unique_ptr<Algorithm> make_ring_or_direct(Rank& rank, Stream& stream);
std::unique_ptr<Algorithm> make_halving_doubling(Rank& rank, Stream& stream);
std::unique_ptr<Algorithm> make_double_binary_tree(Rank& rank, Stream& stream);
std::unique_ptr<Algorithm> make_rooted(Rank& rank, Stream& stream);
std::unique_ptr<Algorithm> make_uneven(Rank& rank, Stream& stream);
std::unique_ptr<Algorithm> make_custom(Rank& rank, Stream& stream);
// Create the algorithm for a phase whose end is computed without simulating its messages (see
// Meetings).
std::unique_ptr<Algorithm> make_met(Rank& rank, Stream& stream);

// Check that the algorithm can run on the ring of the phase. Raises ConfigError if the algorithm cannot
// run. For the file of a custom algorithm, also raises WorkloadFormatError or DependencyError.
void require_works(const Phase& phase, const Config& config, CustomAlgorithms& customs);

// Create the algorithm of the stream's current phase. Raises the same errors as `require_works`.
std::unique_ptr<Algorithm> make_algorithm(Rank& rank, Stream& stream);

}  // namespace chakrascope::engine

// The base of every collective algorithm: exchanges with peers, and the endpoint delay.
#pragma once

#include <cstdint>
#include <memory>

#include "../config.h"
#include "../event_queue.h"
#include "custom.h"
#include "stream.h"

namespace chakrascope::engine {

class Rank;

// The path of a bundle of data through the endpoint.
enum class Side : std::uint8_t { ToMemory, ToNpu };

// One phase of one stream. Its events come from the mailbox (`received`) and the endpoint (`credited`).
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

    // Exchange with the rank at a position of the ring. A message sent *in line* leaves after the
    // rank's earlier messages to that peer, even on a network without queues.
    void send(std::int32_t place, std::uint64_t size, bool in_line = false);
    void receive(std::int32_t place, std::uint64_t size, std::uint64_t what = 0);
    // Move data through the endpoint; `processed` data is also reduced. Ends with `credited`.
    void bundle(bool processed, bool send_back, Side side, std::uint64_t size, std::uint64_t what = 0);
    // End the phase. The algorithm is destroyed when this returns.
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
// Only for phases that are computed as a whole (see Meetings).
std::unique_ptr<Algorithm> make_met(Rank& rank, Stream& stream);

// Check that the algorithm can run on the ring of the phase. Raises ConfigError if not; for a
// custom algorithm's file also WorkloadFormatError or DependencyError.
void require_works(const Phase& phase, const Config& config, CustomAlgorithms& customs);

// Create the algorithm of the stream's current phase; raises as `require_works`.
std::unique_ptr<Algorithm> make_algorithm(Rank& rank, Stream& stream);

}  // namespace chakrascope::engine

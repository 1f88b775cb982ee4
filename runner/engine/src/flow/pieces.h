// Messages in pieces of a few packets each, which wait for links in the order in which they come: for
// messages that are as short as their windows, which are on one link at a time where a fluid is on all of its
// way.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "../fabric/report.h"
#include "../fabric/routes.h"
#include "../network/network.h"
#include "courses.h"
#include "history.h"
#include "timing.h"
#include "validity.h"

namespace chakrascope::engine::flow {

class PieceNetwork final : public Network {
  public:
    PieceNetwork(const Config& config, EventQueue& events, Mailbox& mailbox);

    void carry(std::uint32_t message) override;
    const std::vector<LinkUse>& links() const override;
    const FabricReport* report() const override;

  private:
    // A message until its last acknowledgement is back: what each of its pieces asks of it.
    struct alignas(64) Flow {
        std::uint64_t sent = 0;  // these four count packets
        std::uint64_t arrived = 0;
        std::uint64_t acknowledged = 0;
        std::uint64_t window = 0;
        std::uint64_t packets = 0;
        std::uint32_t piece = 1;       // packets of a piece
        std::uint32_t last_bytes = 0;  // of the last packet
        std::uint16_t forward = 0;     // links there and back
        std::uint16_t back = 0;
    };
    // And what only its ends do.
    struct Ends {
        std::uint32_t message = 0;
        Origin origin;
        std::uint64_t order = 0;
        FlowRecord record;
    };
    // All that is looked at on its way is in one line of the cache.
    struct alignas(64) Piece {
        static constexpr std::size_t kNear = 6;

        std::int64_t time = 0;  // when it is at the next link
        std::uint64_t order = 0;
        Ticks tail = 0;  // when all of it is there
        std::uint32_t flow = 0;
        std::uint32_t packets = 0;
        // Of data, the bytes of its last packet; of an answer, the packets of data that it speaks for.
        std::uint32_t told = 0;
        std::uint16_t left : 14 = 0;     // links of its way
        std::uint16_t answers : 1 = 0;   // it is an answer
        std::uint16_t ends : 1 = 0;      // with the last packet of the message
        std::uint16_t step = 0;          // on its way
        std::uint32_t near[kNear] = {};  // the first links of it
    };
    // What a link looks at for each piece, in one line of the cache as well.
    struct alignas(64) Link {
        Ticks full = 0;
        Ticks answer = 0;
        Ticks delay = 0;
        Ticks free = 0;
        Ticks patience = 0;  // of a queue, before the switch may pause its neighbours
        Ticks owed = 0;      // to answers that take the link
        Ticks queued = 0;    // the sum over packets
        std::uint64_t answers = 0;
    };
    // What a link carried of data.
    struct Carried {
        std::uint64_t bytes = 0;
        std::uint64_t packets = 0;
        Ticks busy = 0;
        std::uint64_t told = 0;  // bytes, with answers, that the history has
    };
    // What waits in a host for one of its links.
    struct Waiting {
        bool awake = false;  // an alarm will look for what to send
        std::size_t turn = 0;
        std::vector<std::uint32_t> senders;  // messages with packets to send
        std::deque<Piece> answers;
    };
    bool advance(std::int64_t limit_ns);
    void wake(std::uint32_t link, Ticks time);
    void send(std::uint32_t link);
    std::uint32_t next_sender(Waiting& waiting);
    Piece cut(std::uint32_t flow, Waiting& waiting);
    void arrive(const Piece& piece);
    void take_data(const Piece& piece);
    void answer(std::uint32_t number, std::uint64_t answers, std::uint64_t packets);
    void take_answer(const Piece& piece);
    void pass(const Piece& piece, std::uint32_t link);
    void finish(std::uint32_t number);
    void record();
    std::uint64_t carried(std::uint32_t link) const;
    std::uint32_t keep(const Flow& flow, const Ends& ends);
    void keep_way(std::uint32_t flow, const std::vector<std::uint32_t>& forward,
                  const std::vector<std::uint32_t>& back);
    const std::uint32_t* forward(std::uint32_t flow) const { return &hops_[2 * stride_ * flow]; }
    const std::uint32_t* back(std::uint32_t flow) const { return forward(flow) + stride_; }
    std::uint64_t window_of(std::int32_t source, std::int32_t destination);

    EventQueue& events_;
    Mailbox& mailbox_;
    const packet::Settings& settings_;
    const double shake_;                // packets
    const std::uint32_t most_packets_;  // of a piece
    const std::uint64_t packets_an_answer_;
    const std::vector<std::int32_t>& hosts_;
    Routes routes_;
    SourcePorts ports_;
    Timing timing_;
    const Validity validity_;
    PathMeasure longest_;
    const std::uint64_t full_bytes_;  // of a packet on the wire
    std::vector<Link> links_;
    std::vector<Carried> carried_;  // by each link
    std::vector<Waiting> waiting_;  // for each link
    std::vector<Flow> flows_;
    std::vector<Ends> ends_;           // of each flow
    std::vector<std::uint32_t> hops_;  // of each flow: `stride_` links there, and as many back
    std::size_t stride_ = 4;
    std::vector<std::uint32_t> free_flows_;
    Courses<Piece> courses_;  // of each link: what arrives over it; its alarm looks for what to send
    Ticks now_ = 0;
    Ticks until_ = 0;  // of this advance: the earliest completion that it has told the queue
    std::uint64_t announced_ = 0;
    std::uint64_t passed_ = 0;
    bool pauses_ = false;

    const bool recording_;
    History history_;
    mutable std::vector<LinkUse> uses_;
    mutable FabricReport report_;
};

}  // namespace chakrascope::engine::flow

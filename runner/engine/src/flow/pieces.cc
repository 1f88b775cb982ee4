#include "pieces.h"

#include <algorithm>
#include <limits>

#include "noise.h"

namespace chakrascope::engine::flow {
namespace {

constexpr Ticks kTicksPerNs = 1000;
constexpr Ticks kForever = std::numeric_limits<Ticks>::max();
constexpr std::uint32_t kNone = 0xFFFFFFFF;
constexpr std::uint64_t kEventsAPoll = 4096;
// Of what the ports of a switch share, before one of them pauses its neighbour.
constexpr double kPoolShare = 9;
// Pieces of a message and of a window at least.
constexpr std::uint64_t kParts = 8;
constexpr std::uint64_t kWindowParts = 16;

std::uint64_t packets_an_answer(const packet::Settings& settings) {
    return std::max<std::uint64_t>(
        1, (settings.ack_interval_bytes + settings.payload_bytes - 1) / settings.payload_bytes);
}

}  // namespace

PieceNetwork::PieceNetwork(const Config& config, EventQueue& events, Mailbox& mailbox)
    : events_(events),
      mailbox_(mailbox),
      settings_(config.packet),
      shake_(config.shake_packets),
      most_packets_(std::max<std::uint32_t>(config.piece_packets, 1)),
      packets_an_answer_(packets_an_answer(config.packet)),
      hosts_(config.fabric.hosts),
      routes_(routes_at_start(config.fabric, config.packet.time_step)),
      timing_(routes_.directions(), config.packet),
      validity_(routes_, config.packet),
      full_bytes_(static_cast<std::uint64_t>(timing_.packet_bytes())),
      links_(routes_.directions().size()),
      carried_(links_.size()),
      waiting_(links_.size()),
      courses_(links_.size(), links_.size()),
      recording_(config.record_links),
      history_(recording_ ? links_.size() : 0) {
    if (settings_.global_window) longest_ = routes_.largest(settings_.payload_bytes);
    const std::vector<std::int32_t> devices = number_devices(config.fabric);
    for (std::uint32_t i = 0; i < links_.size(); ++i) {
        const Direction& direction = routes_.directions()[i];
        Link& link = links_[i];
        link.full = static_cast<Ticks>(timing_.full(i));
        link.answer = static_cast<Ticks>(timing_.answer(i));
        link.delay = direction.delay;
        const double most_bytes = std::max(validity_.pool(direction.from), 0.0) / kPoolShare;
        link.patience = routes_.is_host(direction.from)
                            ? kForever
                            : static_cast<Ticks>(most_bytes / timing_.packet_bytes() * timing_.full(i));
        FabricLinkUse& use = report_.links.emplace_back();
        use.source = devices[static_cast<std::size_t>(direction.from)];
        use.destination = devices[static_cast<std::size_t>(direction.to)];
    }
    if (!config.fabric.changes.empty()) report_.changes.emplace_back();
    events_.set_source<&PieceNetwork::advance>(this);
}

std::uint64_t PieceNetwork::window_of(std::int32_t source, std::int32_t destination) {
    if (!settings_.window) return std::numeric_limits<std::uint64_t>::max();
    const PathMeasure& way =
        settings_.global_window ? longest_ : routes_.measure(source, destination, settings_.payload_bytes);
    const std::uint64_t payload = settings_.payload_bytes;
    return (std::max<std::uint64_t>(1, way.product_bytes) + payload - 1) / payload;
}

void PieceNetwork::carry(std::uint32_t message) {
    const Route route = mailbox_.route(message);
    const auto now = static_cast<std::int64_t>(events_.now());
    const std::uint64_t bytes = mailbox_.size(message);
    const Ends ends{
        message, events_.origin(), announced_++, {route.source, route.destination, bytes, now, 0}};
    const Packets packets = timing_.packets(bytes);
    const std::int32_t source = hosts_[static_cast<std::size_t>(route.source)];
    const std::int32_t destination = hosts_[static_cast<std::size_t>(route.destination)];
    Flow flow;
    flow.packets = packets.count;
    flow.last_bytes = packets.last_bytes;
    flow.window = window_of(source, destination);
    flow.piece = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        std::min(flow.packets / kParts, flow.window / kWindowParts), 1, most_packets_));
    flow.window += flow.piece - 1;  // what a piece holds back
    report_.largest_piece = std::max(report_.largest_piece, flow.piece);
    const std::uint16_t port = ports_.take(source, destination);
    const std::vector<std::uint32_t> there = routes_.path(source, destination, data_ports(port));
    const std::vector<std::uint32_t> back = routes_.path(destination, source, answer_ports(port));
    flow.forward = static_cast<std::uint16_t>(there.size());
    flow.back = static_cast<std::uint16_t>(back.size());
    const std::uint32_t number = keep(flow, ends);
    keep_way(number, there, back);
    waiting_[there.front()].senders.push_back(number);
    wake(there.front(), now * kTicksPerNs);
}

std::uint32_t PieceNetwork::keep(const Flow& flow, const Ends& ends) {
    if (free_flows_.empty()) {
        flows_.push_back(flow);
        ends_.push_back(ends);
        hops_.resize(2 * stride_ * flows_.size());
        return static_cast<std::uint32_t>(flows_.size() - 1);
    }
    const std::uint32_t place = free_flows_.back();
    free_flows_.pop_back();
    flows_[place] = flow;
    ends_[place] = ends;
    return place;
}

void PieceNetwork::keep_way(std::uint32_t flow, const std::vector<std::uint32_t>& there,
                            const std::vector<std::uint32_t>& back) {
    const std::size_t longest = std::max(there.size(), back.size());
    if (longest > stride_) {
        std::vector<std::uint32_t> wider(2 * longest * flows_.size());
        for (std::size_t half = 0; half < 2 * flows_.size(); ++half)
            std::copy_n(&hops_[half * stride_], stride_, &wider[half * longest]);
        hops_.swap(wider);
        stride_ = longest;
    }
    std::uint32_t* hops = &hops_[2 * stride_ * flow];
    std::copy(there.begin(), there.end(), hops);
    std::copy(back.begin(), back.end(), hops + stride_);
}

void PieceNetwork::wake(std::uint32_t number, Ticks time) {
    Waiting& waiting = waiting_[number];
    if (waiting.awake) return;
    waiting.awake = true;
    const Link& link = links_[number];
    courses_.add_alarm(number, std::max(link.free + link.owed, time));
}

// Simulate up to the limit, exclusive; returns whether anything was added to the queue.
bool PieceNetwork::advance(std::int64_t limit_ns) {
    const Ticks limit =
        limit_ns < 0 || limit_ns >= kForever / kTicksPerNs ? kForever : limit_ns * kTicksPerNs;
    until_ = limit;
    const auto fetch = [this](const Piece& next) {
        if (next.left == 0) __builtin_prefetch(&flows_[next.flow], 1);
    };
    while (!courses_.empty() && courses_.first().time < until_) {
        const auto event = courses_.first();
        now_ = event.time;
        if (recording_ && history_.end() <= static_cast<double>(now_)) record();
        if (courses_.is_alarm(event)) {
            courses_.take_alarm();
            send(courses_.alarm_of(event));
        } else {
            arrive(courses_.take(fetch));
        }
        if (++passed_ % kEventsAPoll == 0 && !events_.keep_going(static_cast<Time>(now_ / kTicksPerNs)))
            return false;
    }
    return until_ < limit;
}

// Answers go first; then the messages take turns, those whose windows are not full.
void PieceNetwork::send(std::uint32_t number) {
    Waiting& waiting = waiting_[number];
    waiting.awake = false;
    if (!waiting.answers.empty()) {
        const Piece answer = waiting.answers.front();
        waiting.answers.pop_front();
        pass(answer, number);
    } else {
        const std::uint32_t flow = next_sender(waiting);
        if (flow == kNone) return;
        pass(cut(flow, waiting), number);
    }
    if (waiting.answers.empty() && waiting.senders.empty()) return;
    wake(number, now_);
    if (waiting.senders.empty()) return;
    const std::uint32_t next = waiting.senders[(waiting.turn + 1) % waiting.senders.size()];
    __builtin_prefetch(&flows_[next], 1);
    __builtin_prefetch(forward(next));
}

std::uint32_t PieceNetwork::next_sender(Waiting& waiting) {
    const std::vector<std::uint32_t>& senders = waiting.senders;
    std::size_t place = waiting.turn;
    for (std::size_t step = 0; step < senders.size(); ++step) {
        if (++place >= senders.size()) place = 0;
        const Flow& flow = flows_[senders[place]];
        if (flow.sent - flow.acknowledged >= flow.window) continue;
        waiting.turn = place;
        return senders[place];
    }
    return kNone;
}

// The next piece of the message whose turn it is.
PieceNetwork::Piece PieceNetwork::cut(std::uint32_t number, Waiting& waiting) {
    Flow& flow = flows_[number];
    Piece piece;
    piece.flow = number;
    piece.left = flow.forward;
    piece.packets = static_cast<std::uint32_t>(std::min<std::uint64_t>(flow.packets - flow.sent, flow.piece));
    piece.tail = now_;
    std::copy_n(forward(number), std::min<std::size_t>(flow.forward, Piece::kNear), piece.near);
    flow.sent += piece.packets;
    piece.ends = flow.sent == flow.packets;
    piece.told = piece.ends ? flow.last_bytes : static_cast<std::uint32_t>(full_bytes_);
    if (piece.ends) {
        std::vector<std::uint32_t>& senders = waiting.senders;
        senders.erase(senders.begin() + static_cast<std::ptrdiff_t>(waiting.turn));
        if (!senders.empty()) waiting.turn = (waiting.turn + senders.size() - 1) % senders.size();
    }
    return piece;
}

// Put the piece behind whatever takes the link before it. Where it comes in more slowly than it could leave,
// others take what is left of the link.
void PieceNetwork::pass(const Piece& piece, std::uint32_t place) {
    Link& link = links_[place];
    const bool data = !piece.answers;
    const Ticks full = data ? link.full : link.answer;
    const Ticks last = data && piece.ends ? static_cast<Ticks>(timing_.sending(place, piece.told)) : full;
    const Ticks each = piece.packets == 1 ? last : full;
    const Ticks start = std::max(now_, link.free + link.owed);
    link.owed = 0;
    const Ticks duration = (piece.packets - 1) * each + last;
    pauses_ = pauses_ || start - now_ > link.patience;
    link.free = start + duration;
    link.queued += piece.packets * (start - now_);
    if (data) {
        Carried& carried = carried_[place];
        carried.bytes += (piece.packets - 1) * full_bytes_ + piece.told;
        carried.packets += piece.packets;
        carried.busy += duration;
    } else {
        link.answers += piece.packets;
    }
    Piece passed = piece;
    passed.tail = std::max(link.free, piece.tail + last) + link.delay;
    ++passed.step;
    const bool there = --passed.left == 0;
    courses_.add(place, there ? passed.tail : start + each + link.delay, passed);
}

void PieceNetwork::arrive(const Piece& piece) {
    if (piece.left > 0) {
        if (piece.step < Piece::kNear) return pass(piece, piece.near[piece.step]);
        return pass(piece, (piece.answers ? back(piece.flow) : forward(piece.flow))[piece.step]);
    }
    piece.answers ? take_answer(piece) : take_data(piece);
}

void PieceNetwork::take_data(const Piece& piece) {
    Flow& flow = flows_[piece.flow];
    const std::uint64_t before = flow.arrived / packets_an_answer_;
    flow.arrived += piece.packets;
    const bool all = flow.arrived == flow.packets;
    const std::uint64_t after = (flow.arrived + (all ? packets_an_answer_ - 1 : 0)) / packets_an_answer_;
    if (all) finish(piece.flow);
    if (after > before) answer(piece.flow, after - before, flow.arrived - before * packets_an_answer_);
}

// Answers that nobody waits for only take their part of the links back.
void PieceNetwork::answer(std::uint32_t number, std::uint64_t answers, std::uint64_t packets) {
    const Flow& flow = flows_[number];
    const bool all = flow.arrived == flow.packets;
    const std::uint32_t* way = back(number);
    if (most_packets_ > 1 && flow.packets <= flow.window) {
        for (std::size_t hop = 0; hop < flow.back; ++hop) {
            Link& link = links_[way[hop]];
            link.owed += static_cast<Ticks>(answers) * link.answer;
            link.answers += answers;
        }
        if (all) free_flows_.push_back(number);
        return;
    }
    Piece answer;
    answer.flow = number;
    answer.left = flow.back;
    answer.packets = static_cast<std::uint32_t>(answers);
    answer.answers = true;
    answer.told = static_cast<std::uint32_t>(packets);
    answer.ends = all;
    answer.tail = now_;
    std::copy_n(way, std::min<std::size_t>(flow.back, Piece::kNear), answer.near);
    waiting_[way[0]].answers.push_back(answer);
    wake(way[0], now_);
}

void PieceNetwork::take_answer(const Piece& piece) {
    Flow& flow = flows_[piece.flow];
    flow.acknowledged += piece.told;
    if (flow.sent < flow.packets) wake(forward(piece.flow)[0], now_);
    if (piece.ends) free_flows_.push_back(piece.flow);
}

void PieceNetwork::finish(std::uint32_t number) {
    const Flow& flow = flows_[number];
    Ends& ends = ends_[number];
    Ticks there = now_;
    if (shake_ > 0) {
        const double packet = timing_.full(forward(number)[flow.forward - 1]);
        there += static_cast<Ticks>(shake_ * (1 + drawn(ends.order)) * packet);
    }
    const auto end_ns = static_cast<Time>((there + kTicksPerNs - 1) / kTicksPerNs);
    const Time when = std::max(end_ns, events_.now());
    ends.record.end_ns = static_cast<std::int64_t>(when);
    events_.set_origin(ends.origin);
    events_.at(when, bind<&Mailbox::arrived>(&mailbox_, ends.message));
    until_ = std::min(until_, static_cast<Ticks>(when) * kTicksPerNs);
    report_.flows.push_back(ends.record);
    report_.data_packets += flow.packets;
}

// Bytes of data and answers.
std::uint64_t PieceNetwork::carried(std::uint32_t link) const {
    return carried_[link].bytes + links_[link].answers * settings_.ack_bytes();
}

// The stretches of time that end by now are complete.
void PieceNetwork::record() {
    for (std::uint32_t link = 0; link < links_.size(); ++link) {
        const std::uint64_t bytes = carried(link);
        history_.add(link, static_cast<double>(bytes - carried_[link].told));
        carried_[link].told = bytes;
    }
    while (history_.end() <= static_cast<double>(now_)) history_.go_on();
}

const FabricReport* PieceNetwork::report() const {
    report_.events = passed_;
    report_.flags.clear();
    if (pauses_) report_.flags.emplace_back("pauses");
    report_.stretches.clear();
    History history = history_;
    for (std::uint32_t number = 0; number < links_.size(); ++number) {
        const Link& link = links_[number];
        const Carried& data = carried_[number];
        FabricLinkUse& use = report_.links[number];
        use.bytes = carried(number);
        use.packets = data.packets + link.answers;
        use.busy = data.busy + static_cast<Ticks>(link.answers) * link.answer;
        use.queued = link.queued;
        if (!recording_) continue;
        history.add(number, static_cast<double>(use.bytes - data.told));
        history.tell(number, use.source, use.destination, report_.stretches);
    }
    return &report_;
}

const std::vector<LinkUse>& PieceNetwork::links() const {
    uses_.clear();
    for (const FabricLinkUse& use : report()->links)
        uses_.push_back({use.source, use.destination, use.bytes, static_cast<Time>(use.busy / kTicksPerNs),
                         static_cast<Time>(use.queued / kTicksPerNs), use.packets});
    return uses_;
}

}  // namespace chakrascope::engine::flow

namespace chakrascope::engine {

std::unique_ptr<Network> make_piece_network(const Config& config, EventQueue& events, Mailbox& mailbox) {
    return std::make_unique<flow::PieceNetwork>(config, events, mailbox);
}

}  // namespace chakrascope::engine

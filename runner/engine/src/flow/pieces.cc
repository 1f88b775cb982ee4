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
// Pieces of a message and of a window at least.
// Of what the ports of a switch share, before one of them pauses its neighbour.
constexpr double kPoolShare = 9;
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
      routes_(config.fabric, config.packet.time_step),
      timing_(routes_.directions(), config.packet),
      validity_(routes_, config.packet),
      courses_(2 * routes_.directions().size()),
      recording_(config.record_links),
      history_(recording_ ? routes_.directions().size() : 0) {
    if (settings_.global_window) longest_ = routes_.largest(settings_.payload_bytes);
    const std::vector<std::int32_t> devices = number_devices(config.fabric);
    for (std::uint32_t i = 0; i < routes_.directions().size(); ++i) {
        const Direction& direction = routes_.directions()[i];
        Link& link = links_.emplace_back();
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
    events_.set_source([this](std::int64_t limit) { return advance(limit); });
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
    Flow flow;
    flow.message = message;
    flow.origin = events_.origin();
    flow.order = carried_++;
    const auto now = static_cast<std::int64_t>(events_.now());
    flow.record = {route.source, route.destination, mailbox_.size(message), now, 0};
    flow.packets = timing_.packets(flow.record.bytes);
    const std::int32_t source = hosts_[static_cast<std::size_t>(route.source)];
    const std::int32_t destination = hosts_[static_cast<std::size_t>(route.destination)];
    flow.window = window_of(source, destination);
    flow.piece = std::clamp<std::uint64_t>(std::min(flow.packets.count / kParts, flow.window / kWindowParts),
                                           1, most_packets_);
    flow.window += flow.piece - 1;  // what a piece holds back
    report_.largest_piece = std::max(report_.largest_piece, static_cast<std::uint32_t>(flow.piece));
    const std::uint16_t port = ports_.take(source, destination);
    flow.forward = routes_.path(source, destination, data_ports(port));
    flow.back = routes_.path(destination, source, answer_ports(port));
    const std::uint32_t first = flow.forward.front();
    std::uint32_t place = 0;
    if (free_flows_.empty()) {
        place = static_cast<std::uint32_t>(flows_.size());
        flows_.push_back(std::move(flow));
    } else {
        place = free_flows_.back();
        free_flows_.pop_back();
        flows_[place] = std::move(flow);
    }
    links_[first].senders.push_back(place);
    wake(first, now * kTicksPerNs);
}

void PieceNetwork::wake(std::uint32_t number, Ticks time) {
    Link& link = links_[number];
    if (link.awake) return;
    link.awake = true;
    courses_.add(static_cast<std::uint32_t>(links_.size()) + number, std::max(link.free + link.owed, time),
                 number);
}

// Simulate up to the limit, exclusive; returns whether anything was added to the queue.
bool PieceNetwork::advance(std::int64_t limit_ns) {
    const Ticks limit =
        limit_ns < 0 || limit_ns >= kForever / kTicksPerNs ? kForever : limit_ns * kTicksPerNs;
    until_ = limit;
    while (!courses_.empty() && courses_.first_time() < until_) {
        const Courses::Event event = courses_.take();
        now_ = event.time;
        while (recording_ && history_.end() <= static_cast<double>(now_)) history_.go_on();
        event.course >= links_.size() ? send(event.number) : arrive(event.number);
        if (++passed_ % kEventsAPoll == 0 && !events_.keep_going(static_cast<Time>(now_ / kTicksPerNs)))
            return false;
    }
    return until_ < limit;
}

// Answers go first; then the messages take turns, those whose windows are not full.
void PieceNetwork::send(std::uint32_t number) {
    Link& link = links_[number];
    link.awake = false;
    std::uint32_t piece = kNone;
    if (!link.answers.empty()) {
        piece = link.answers.front();
        link.answers.pop_front();
    } else {
        const std::uint32_t flow = next_sender(link);
        if (flow == kNone) return;
        piece = cut(flow);
    }
    pass(piece, number);
    if (!link.answers.empty() || !link.senders.empty()) wake(number, now_);
}

std::uint32_t PieceNetwork::next_sender(Link& link) {
    std::vector<std::uint32_t>& senders = link.senders;
    for (std::size_t step = 1; step <= senders.size(); ++step) {
        const std::size_t place = (link.turn + step) % senders.size();
        const std::uint32_t number = senders[place];
        const Flow& flow = flows_[number];
        if (flow.sent - flow.acknowledged >= flow.window) continue;
        link.turn = place;
        return number;
    }
    return kNone;
}

// The next piece of a message.
std::uint32_t PieceNetwork::cut(std::uint32_t number) {
    Flow& flow = flows_[number];
    const std::uint64_t room = flow.packets.count - flow.sent;
    Piece piece;
    piece.flow = number;
    piece.next = flow.forward.data();
    piece.left = static_cast<std::uint16_t>(flow.forward.size());
    piece.packets = static_cast<std::uint32_t>(std::min(room, flow.piece));
    piece.tail = now_;
    flow.sent += piece.packets;
    piece.ends = flow.sent == flow.packets.count;
    if (piece.ends) {
        Link& link = links_[flow.forward.front()];
        const auto place = std::find(link.senders.begin(), link.senders.end(), number);
        const auto index = static_cast<std::size_t>(place - link.senders.begin());
        link.senders.erase(place);
        if (!link.senders.empty()) link.turn = (index + link.senders.size() - 1) % link.senders.size();
    }
    return keep(piece);
}

std::uint32_t PieceNetwork::keep(const Piece& piece) {
    if (free_pieces_.empty()) {
        pieces_.push_back(piece);
        return static_cast<std::uint32_t>(pieces_.size() - 1);
    }
    const std::uint32_t place = free_pieces_.back();
    free_pieces_.pop_back();
    pieces_[place] = piece;
    return place;
}

// How long its last packet takes.
Ticks PieceNetwork::last_time(const Piece& piece, std::uint32_t link) const {
    if (piece.answered > 0) return links_[link].answer;
    if (!piece.ends) return links_[link].full;
    return static_cast<Ticks>(timing_.sending(link, flows_[piece.flow].packets.last_bytes));
}

std::uint64_t PieceNetwork::bytes_of(const Piece& piece) const {
    if (piece.answered > 0) return std::uint64_t{piece.packets} * settings_.ack_bytes();
    const auto full = static_cast<std::uint64_t>(timing_.packet_bytes());
    const std::uint64_t last = piece.ends ? flows_[piece.flow].packets.last_bytes : full;
    return (piece.packets - 1) * full + last;
}

// Put the piece behind whatever takes the link before it. Where it comes in more slowly than it could leave,
// others take what is left of the link.
void PieceNetwork::pass(std::uint32_t number, std::uint32_t place) {
    Piece& piece = pieces_[number];
    Link& link = links_[place];
    const Ticks last = last_time(piece, place);
    const Ticks each = piece.packets == 1 ? last : piece.answered > 0 ? link.answer : link.full;
    const Ticks start = std::max(now_, link.free + link.owed);
    link.owed = 0;
    const Ticks duration = (piece.packets - 1) * each + last;
    pauses_ = pauses_ || start - now_ > link.patience;
    link.free = start + duration;
    report_.links[place].queued += piece.packets * (start - now_);
    count(place, piece.packets, bytes_of(piece), duration);
    piece.tail = std::max(link.free, piece.tail + last) + link.delay;
    ++piece.next;
    const bool there = --piece.left == 0;
    courses_.add(place, there ? piece.tail : start + each + link.delay, number);
}

void PieceNetwork::count(std::uint32_t link, std::uint64_t packets, std::uint64_t bytes, Ticks time) {
    FabricLinkUse& use = report_.links[link];
    use.bytes += bytes;
    use.packets += packets;
    use.busy += time;
    if (recording_) history_.add(link, static_cast<double>(bytes));
}

void PieceNetwork::arrive(std::uint32_t number) {
    if (pieces_[number].left > 0) return pass(number, *pieces_[number].next);
    const Piece piece = pieces_[number];
    free_pieces_.push_back(number);
    piece.answered > 0 ? take_answer(piece) : take_data(piece);
}

void PieceNetwork::take_data(const Piece& piece) {
    Flow& flow = flows_[piece.flow];
    const std::uint64_t before = flow.arrived / packets_an_answer_;
    flow.arrived += piece.packets;
    const bool all = flow.arrived == flow.packets.count;
    const std::uint64_t after = (flow.arrived + (all ? packets_an_answer_ - 1 : 0)) / packets_an_answer_;
    if (all) finish(flow);
    if (after > before) answer(piece.flow, after - before, flow.arrived - before * packets_an_answer_);
}

// Answers that nobody waits for only take their part of the links back.
void PieceNetwork::answer(std::uint32_t number, std::uint64_t answers, std::uint64_t packets) {
    const Flow& flow = flows_[number];
    const bool all = flow.arrived == flow.packets.count;
    if (most_packets_ > 1 && flow.packets.count <= flow.window) {
        for (const std::uint32_t link : flow.back) {
            const Ticks time = static_cast<Ticks>(answers) * links_[link].answer;
            links_[link].owed += time;
            count(link, answers, answers * settings_.ack_bytes(), time);
        }
        if (all) free_flows_.push_back(number);
        return;
    }
    Piece answer;
    answer.flow = number;
    answer.next = flow.back.data();
    answer.left = static_cast<std::uint16_t>(flow.back.size());
    answer.packets = static_cast<std::uint32_t>(answers);
    answer.answered = static_cast<std::uint32_t>(packets);
    answer.ends = all;
    answer.tail = now_;
    const std::uint32_t first = flow.back.front();
    links_[first].answers.push_back(keep(answer));
    wake(first, now_);
}

void PieceNetwork::take_answer(const Piece& piece) {
    Flow& flow = flows_[piece.flow];
    flow.acknowledged += piece.answered;
    const std::uint32_t first = flow.forward.front();
    if (flow.sent < flow.packets.count) wake(first, now_);
    if (piece.ends) free_flows_.push_back(piece.flow);
}

void PieceNetwork::finish(Flow& flow) {
    Ticks there = now_;
    if (shake_ > 0) {
        const double packet = timing_.full(flow.forward.back());
        there += static_cast<Ticks>(shake_ * (1 + drawn(flow.order)) * packet);
    }
    const auto end_ns = static_cast<Time>((there + kTicksPerNs - 1) / kTicksPerNs);
    const Time when = std::max(end_ns, events_.now());
    flow.record.end_ns = static_cast<std::int64_t>(when);
    events_.set_origin(flow.origin);
    events_.at(when, bind<&Mailbox::arrived>(&mailbox_, flow.message));
    until_ = std::min(until_, static_cast<Ticks>(when) * kTicksPerNs);
    report_.flows.push_back(flow.record);
    report_.data_packets += flow.packets.count;
}

const FabricReport* PieceNetwork::report() const {
    report_.events = passed_;
    report_.flags.clear();
    if (pauses_) report_.flags.emplace_back("pauses");
    report_.stretches.clear();
    for (std::uint32_t link = 0; recording_ && link < report_.links.size(); ++link)
        history_.tell(link, report_.links[link].source, report_.links[link].destination, report_.stretches);
    return &report_;
}

const std::vector<LinkUse>& PieceNetwork::links() const {
    uses_.clear();
    for (const FabricLinkUse& use : report_.links)
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

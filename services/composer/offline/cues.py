"""Words, folded, that tell what a sentence or a word is for, in the languages looked after."""

FIRST_PERSON = frozenset(
    "i i'm i've i'd my me mine ich mich mir mein meine meinem meinen meiner je j'ai j'en moi "
    "mon ma mes yo me mi mis я меня мне мой моя моё мои моей мною 我 僕 私 俺".split()
)
# As a sentence's first word they point back to a sentence that a summary may leave out.
POINTS_BACK = frozenset(
    "but and so then this that these those he she it they his her their there also still aber "
    "und denn dann das dies diese dieser er sie es dort dabei dafür deshalb auch doch damit "
    "mais et donc alors ce cet cette ces il elle ils elles cela c'est là aussi pero y entonces "
    "esto eso este esta él ella ellos ellas también además así allí но и а потом это этот эта "
    "эти он она они тогда там поэтому также зато "
    "但是 但 而且 所以 于是 因此 这 这些 那 那么 他 她 它 他们 她们 也 しかし "
    "そして それ これ".split()
)
ARTICLES = frozenset(
    "the a an this that our their its der die das den dem des ein eine einen einem einer dieser "
    "diese dieses im am zum zur le la les l un une des du au aux ce cet cette leur el los las "
    "unos unas una del al su sus este esta lo il gli o os as um uma de het een en ett".split()
)
# Quantity and time: frequent words that no post is about.
MEASURES = frozenset(
    "year years month months week weeks day days hour hours minute minutes time times percent "
    "per cent degrees euro euros dollar dollars pound pounds million metre metres today morning "
    "evening night monday tuesday wednesday thursday friday saturday sunday january february "
    "march april may june july august september october november december jahr jahre jahren "
    "monat monate monaten woche wochen tag tage tagen stunde stunden minute minuten uhr prozent "
    "grad kilowattstunden meter nacht abend morgen montag dienstag mittwoch donnerstag freitag "
    "samstag sonntag januar februar märz mai juni juli oktober dezember an ans année années "
    "mois semaine semaines jour jours heure heures minutes mètres grammes fois pour cent matin "
    "soir nuit lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars avril "
    "juin juillet août septembre octobre novembre décembre año años mes meses semana semanas "
    "día días hora horas minuto minutos metros kilómetros pesos veces vez ciento noche mañana "
    "tarde lunes martes miércoles jueves viernes sábado domingo enero febrero marzo abril mayo "
    "junio julio agosto septiembre octubre noviembre diciembre год года лет году годы месяц "
    "месяца месяцев неделя недели недель неделю день дня дней дни час часа часов минута минут "
    "минуты рублей рубля рубль раз раза процент процентов метров сто тысяч тысячи утро утром "
    "вечер вечером ночь ночи понедельник вторник среда четверг пятница суббота воскресенье "
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря "
    "今年 去年 明年 今天 昨天 小时 分钟 平均 年 月 日 時間 今日 昨日".split()
)
